"""Loads extractor files that may be hostile, as an engine would, and tells how that went.

Run by ``benchmarks.fuzz_extractor`` in a process of its own: one that may die.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from multiprocessing.connection import Connection

from swift_hapi.graph.residence import peak_resident, reset_peak

#: activations that an engine would grant one micro-batch
CAP = 256 * 2**20
#: operations per sample that an engine would allow
FLOPS = 5e9
#: address space beyond what the process has at its start: what exceeds it fails here, not later
HEADROOM = 3 * 2**30


def _try(data: bytes) -> tuple[str, str]:
    """(``loaded``, ``refused`` or ``untyped``, what was said)."""
    import torch

    from swift_hapi.graph.caps import Caps
    from swift_hapi.graph.extractor import load_extractor
    from swift_hapi.graph.interpreter import Head
    from swift_hapi.graph.memory import peak_bytes
    from swift_hapi.protocol.errors import HapiError

    try:
        extractor = load_extractor(data, Caps(flops=FLOPS))
        if peak_bytes(extractor, extractor.cuts[-1], 8) > CAP:
            return "loaded", "too large to run"
        for cut in {0, len(extractor.cuts) // 2, len(extractor.cuts) - 1}:
            cut = extractor.cuts[cut]
            head = Head(extractor, cut)
            for batch in (1, 2, 8):
                shape = (batch, *extractor.input_shape)
                x = torch.zeros(shape, dtype=extractor.dtype)
                out = head(x if extractor.dtype == torch.int64 else x.uniform_(-1, 1))
                if tuple(out.shape) != (batch, *cut.shape):
                    return "untyped", f"{tuple(out.shape)} where {cut.shape} was promised"
            if _mixes(head, extractor):
                return "mixed", f"samples meet each other up to {cut.name}"
    except HapiError as error:
        return "refused", f"{type(error).__name__}: {error.detail}"
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return "untyped", f"{type(error).__name__}: {error}"
    return "loaded", ""


def _mixes(head, extractor) -> bool:
    """Whether a sample's features change with its neighbour, its place in the batch, or the number
    of neighbours."""
    import torch

    shape = (3, *extractor.input_shape)
    if extractor.dtype == torch.int64:
        a, b, c = torch.randint(0, extractor.ids_below or 2, shape)
    else:
        a, b, c = torch.randn(shape)
    one, swapped, other = (head(torch.stack(pair)) for pair in ((a, b), (b, a), (a, c)))

    def same(x, y) -> bool:
        scale = x.abs().nan_to_num(0, 0, 0).max().item() if x.numel() else 0.0
        return torch.allclose(x, y, rtol=1e-3, atol=1e-4 * scale + 1e-6, equal_nan=True)

    alone, three = head(a[None]), head(torch.stack((b, c, a)))
    pairs = (
        (one[0], swapped[1]), (one[1], swapped[0]), (one[0], other[0]),
        (one[0], alone[0]), (one[0], three[2]),
    )  # fmt: skip
    return not all(same(x, y) for x, y in pairs)


def _warm_up() -> None:
    """What is imported late, and the first run on the meta device, is not the file's doing."""
    from benchmarks.corpus import corpus

    for data in corpus():
        _try(data)


def work(pipe: Connection) -> None:
    """Serve until the pipe is closed: bytes in, (verdict, words, CPU seconds, bytes of memory)
    out."""
    import torch

    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - torch warns of every oddity, once
    _warm_up()
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + HEADROOM, size + HEADROOM))
    pipe.send("ready")
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            return
        reset_peak()
        before = peak_resident()
        started = time.process_time()
        verdict, words = _try(data)
        seconds = time.process_time() - started
        pipe.send((verdict, words[:300], seconds, peak_resident() - before))
