"""Measure the memory of a head in a process of its own: other work would disturb it.

    python -m swift_hapi.graph.measure FILE --batches 8,32 [--cut NAME] [--threads N]
                                            [--within ONCE,TIMES | --free]

prints ``{"8": {"peak": bytes, "cpu": seconds, "trims": n}, …}``: most memory held while the head
runs that many samples, its input and output included, beyond what the process has when it is warm
and has the weights. The allocator is set as in the engine. All free memory is returned before
every node; with ``--within`` only as often as the engine would, had it just the memory that the
model with these figures predicts; with ``--free`` never.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time

from swift_hapi.graph.allocator import keep_freed_memory
from swift_hapi.graph.residence import peak_resident, reset_peak, resident

#: what a first run leaves behind shows in the second
_RUNS = 2


def _warm_up(torch) -> None:
    """What the libraries take once, whatever the network, is not the network's."""
    with torch.inference_mode():
        x = torch.zeros(2, 8, 16, 16).contiguous(memory_format=torch.channels_last)
        x = torch.nn.functional.conv2d(x, torch.zeros(8, 8, 3, 3))
        torch.nn.functional.linear(x.flatten(1), torch.zeros(4, 1568))


def measure(
    path: str,
    cut: str | None,
    batches: list[int],
    threads: int,
    within: tuple[float, float] | None = None,
    free: bool = False,
) -> dict[int, dict]:
    """By batch size, ascending: peak in bytes, CPU seconds of one run, returns of memory."""
    import torch

    from swift_hapi.graph.extractor import load_extractor
    from swift_hapi.graph.heap import Heap
    from swift_hapi.graph.interpreter import Head
    from swift_hapi.graph.liveness import live_profile
    from swift_hapi.graph.memory import MemoryModel

    torch.set_num_threads(threads)
    extractor = load_extractor(path)
    _warm_up(torch)
    at = extractor.resolve(cut) if cut else extractor.cuts[-1]
    head = Head(extractor, at)
    memory = MemoryModel(*within).of(live_profile(extractor, at)) if within else None
    gc.collect()
    Heap(0).give_back()
    base = resident()
    found = {}
    for batch in sorted(batches):
        heap = Heap(memory.needs(batch) if memory else 0)
        heap.settle()
        reset_peak()
        spent = []
        for _ in range(_RUNS):
            if memory:
                before = heap.watch(memory, batch)
            else:
                before = None if free else lambda at: heap.give_back()  # noqa: B023
            x = torch.zeros((batch, *extractor.input_shape), dtype=extractor.dtype)
            if x.is_floating_point():
                x.uniform_()
            began = time.process_time()
            out = head(x, before)
            spent.append(time.process_time() - began)
            del x, out
        found[batch] = {"peak": peak_resident() - base, "cpu": min(spent), "trims": heap.trims}
        Heap(0).give_back()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--cut")
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--nice", type=int, default=0)
    parser.add_argument("--within", metavar="ONCE,TIMES")
    parser.add_argument("--free", action="store_true")
    args = parser.parse_args()
    os.nice(args.nice)
    keep_freed_memory()
    batches = [int(batch) for batch in args.batches.split(",")]
    within = tuple(map(float, args.within.split(","))) if args.within else None
    found = measure(args.file, args.cut, batches, args.threads, within, args.free)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
