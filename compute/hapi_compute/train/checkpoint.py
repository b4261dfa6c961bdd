"""Checkpoints: one safetensors file with weights, optimiser state and, as JSON, where the run is.

Tensors are ``model/<name>`` and ``optimizer/<parameter>/<key>``. Never pickle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from hapi_compute.train.errors import CheckpointMismatch
from hapi_compute.train.files import write_whole
from hapi_compute.train.state import RunState
from swift_hapi.protocol.payload import PayloadInvalid, canonical_json, read_metadata

NAME = "checkpoint.safetensors"
BEST_NAME = "best.safetensors"
VERSION = 2


@dataclass(frozen=True)
class Identity:
    """What must be equal for a run to go on: options, data, and frozen weights."""

    options: dict
    dataset: str
    extractor: str

    def to_json(self) -> dict:
        return {"options": self.options, "dataset": self.dataset, "extractor": self.extractor}


def save(
    path: Path,
    identity: Identity,
    state: RunState,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Write a checkpoint in place of the previous one.

    :param scaler: of gradients; one that is not enabled has no state
    """
    tensors = {f"model/{k}": v for k, v in model.state_dict().items()}
    scalars: dict[str, dict] = {}
    for name, values in _by_name(model, optimizer).items():
        for key, value in values.items():
            if torch.is_tensor(value):
                tensors[f"optimizer/{name}/{key}"] = value
            else:
                scalars.setdefault(name, {})[key] = value
    metadata = {
        "version": VERSION,
        "identity": identity.to_json(),
        "state": state.to_json(),
        "optimizer": scalars,
        "scaler": {} if scaler is None else scaler.state_dict(),
    }
    # Clones: safetensors refuses tensors that share memory.
    whole = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
    write_whole(path, safetensors.torch.save(whole, {"hapi": canonical_json(metadata)}))


def load(
    content: bytes,
    path: Path,
    identity: Identity,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler | None = None,
) -> RunState:
    """Put weights, optimiser state and the scaler's back.

    :param content: of the file ``path``, which is named in errors
    :raises CheckpointMismatch: it is of another run, or damaged
    """
    try:
        metadata = read_metadata(content)
    except PayloadInvalid as error:
        raise CheckpointMismatch(
            f"{path}: is damaged or cut short ({error}); --overwrite begins anew"
        ) from None
    if metadata.get("version") != VERSION:
        raise CheckpointMismatch(f"{path}: version {metadata.get('version')!r} is not {VERSION}")
    _compare(path, metadata["identity"], identity.to_json())
    try:
        weights(content, path, model)
        _restore(model, optimizer, safetensors.torch.load(content), metadata["optimizer"])
        if scaler is not None and metadata.get("scaler"):
            scaler.load_state_dict(metadata["scaler"])
        return RunState.from_json(metadata["state"])
    except (safetensors.SafetensorError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointMismatch(f"{path}: does not fit this model: {error}") from None


def weights(content: bytes, path: Path, model: nn.Module) -> None:
    """Put the weights of a checkpoint into ``model``, and nothing else.

    :raises CheckpointMismatch: they do not fit, or the file is damaged
    """
    try:
        tensors = safetensors.torch.load(content)
        model.load_state_dict(
            {k.removeprefix("model/"): v for k, v in tensors.items() if k.startswith("model/")}
        )
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise CheckpointMismatch(f"{path}: does not fit this model: {error}") from None


def _by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict]:
    return {
        name: optimizer.state[parameter]
        for name, parameter in model.named_parameters()
        if parameter in optimizer.state
    }


def _restore(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, torch.Tensor],
    scalars: dict[str, dict],
) -> None:
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for name, values in scalars.items():
        optimizer.state[parameters[name]].update(values)
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            name, _, entry = key.removeprefix("optimizer/").rpartition("/")
            parameter = parameters[name]
            # Step counts stay on the CPU, as torch's optimisers have them.
            where = "cpu" if tensor.dim() == 0 else parameter.device
            optimizer.state[parameter][entry] = tensor.to(where)


def _compare(path: Path, found: dict, wanted: dict) -> None:
    # Checkpoints from before there was a choice do not say so.
    found = {**found, "options": {"precision": "float32"} | found["options"]}
    # Through JSON, so that tuples and lists compare equal.
    wanted = json.loads(canonical_json(wanted))
    flat_found, flat_wanted = (
        {**d["options"], "dataset's objects": d["dataset"], "frozen part": d["extractor"]}
        for d in (found, wanted)
    )
    for key in sorted(set(flat_found) | set(flat_wanted)):
        if flat_found.get(key) != flat_wanted.get(key):
            raise CheckpointMismatch(
                f"{path}: is of a run with another {key}: {flat_found.get(key)!r}, not "
                f"{flat_wanted.get(key)!r}"
            )
