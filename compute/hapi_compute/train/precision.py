"""Mixed precision, for what is trained alone.

The layers behind the freeze point compute under torch's autocast; their weights, the optimiser's
state and the loss stay in float32. The frozen part is float32 on either tier: where it is cut has
no more influence with mixed precision than without.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from hapi_compute.train.config import AUTO

FLOAT32, BFLOAT16, FLOAT16 = "float32", "bfloat16", "float16"


def resolve(asked: str, device: torch.device) -> str:
    """What ``asked`` comes to on ``device``: ``auto`` is bfloat16 on GPUs that compute in it, and
    float32 elsewhere, since CPUs without instructions for it are far slower in bfloat16.

    :raises ValueError: the device does not train in that precision
    """
    gpu = device.type == "cuda"
    if asked == AUTO:
        fast = gpu and torch.cuda.is_bf16_supported(including_emulation=False)
        return BFLOAT16 if fast else FLOAT32
    if asked == FLOAT16 and not gpu:
        raise ValueError(
            f"precision={asked!r}: is for GPUs, the run is on a {device.type.upper()}; want "
            f"{FLOAT32}, {BFLOAT16} or {AUTO}"
        )
    return asked


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """For the forward pass of what is trained.

    :param precision: not ``auto``
    """
    if precision == FLOAT32:
        return nullcontext()
    return torch.autocast(device.type, getattr(torch, precision))


def scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """What keeps small gradients from becoming nothing in float16; elsewhere it does nothing."""
    return torch.amp.GradScaler(device.type, enabled=precision == FLOAT16)
