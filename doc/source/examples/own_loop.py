import os

import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW
from torch.utils.data import DataLoader

from hapi_compute import Credentials, FeaturesOf, SwiftClient, SwiftDataset
from hapi_compute.models import load_model
from swift_hapi.graph.split import build_transfer


def main():
    login = Credentials(*(os.environ[name] for name in ("ST_AUTH", "ST_USER", "ST_KEY")))
    model = load_model("resnet18", os.environ.get("WEIGHTS", "default"))
    frozen, head = build_transfer(model.module, "avgpool", num_classes=10, seed=0)
    data = SwiftDataset("swift://digits/train", SwiftClient(login), batch_size=64,
                        transform=model.transform, features=FeaturesOf(frozen))
    parallel, optimizer = DistributedDataParallel(head), AdamW(head.parameters(), lr=1e-3)
    for epoch in range(3):
        data.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=None):
            losses = cross_entropy(parallel(batch["data"]), batch["label"], reduction="sum")
            loss = losses * dist.get_world_size() / batch["total"]  # all ranks' mean
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"rank {dist.get_rank()}, epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)


if "RANK" in os.environ:  # torchrun
    dist.init_process_group("gloo")
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
main()  # What holds on to the process group is gone before it is.
dist.destroy_process_group()
