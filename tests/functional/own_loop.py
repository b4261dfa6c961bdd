"""A program: somebody's own training loop that saves itself after every step.

Arguments: JSON with ``auth`` (url, user, key), ``url``, ``out``, ``epochs``, ``workers``,
``pause`` (seconds in every step, so that it can be killed within one). Rank and ranks come from
the environment, as ``torchrun`` sets it; ranks meet at ``meeting``, a file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from hapi_compute import Credentials, FeaturesOf, SwiftClient, SwiftDataset
from hapi_compute.models import load_model
from swift_hapi.graph.split import build_transfer


def main(ask: dict) -> None:
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{ask['meeting']}", rank=rank, world_size=ranks
    )
    store = SwiftClient(Credentials(*ask["auth"]))
    module = load_model("resnet18", "random:5").module
    frozen, head = build_transfer(module, "avgpool", 10, 0, (3, 32, 32))
    data = SwiftDataset(
        ask["url"], store, batch_size=6, transform="resize=32x32, mean=(0.5), std=(0.25)",
        features=FeaturesOf(frozen, required=True), window=2, seed=4,
    )  # fmt: skip
    optimizer = torch.optim.SGD(head.parameters(), lr=0.002, momentum=0.9)
    saved, consumed = Path(ask["out"], "saved.pt"), []
    if saved.exists():
        found = torch.load(saved, weights_only=True)
        head.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        data.load_state_dict(found["data"])
        consumed = found["consumed"]
    model = DistributedDataParallel(head)
    for epoch in range(data.state_dict()["epoch"], ask["epochs"]):
        data.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=None, num_workers=ask["workers"]):
            losses = functional.cross_entropy(
                model(batch["data"]), batch["label"], reduction="sum"
            )
            optimizer.zero_grad()
            (losses * ranks / batch["total"]).backward()
            optimizer.step()
            parts = [None] * ranks
            dist.all_gather_object(parts, (batch["key"], losses.item()))
            keys = [key for part, _ in parts for key in part]
            loss = sum(part for _, part in parts) / batch["total"]
            consumed.append([epoch, batch["step"], keys, loss])
            time.sleep(ask["pause"])
            if rank == 0:
                save(saved, data.state_after(batch), head, optimizer, consumed)
    dist.barrier()


def save(path: Path, state: dict, head, optimizer, consumed: list) -> None:
    whole = {
        "data": state,
        "model": head.state_dict(),
        "optimizer": optimizer.state_dict(),
        "consumed": consumed,
    }
    torch.save(whole, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)
    path.with_name("steps").write_text(str(len(consumed)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
