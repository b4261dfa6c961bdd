"""Extractors and their files.

An extractor file is one ``.safetensors`` file with the single metadata key ``hapi``: canonical
JSON with ``format``, ``version``, ``input`` (shape of one sample, dtype, whether the shape is
fixed), ``nodes``, ``modules``, ``output`` (the freeze cut), ``constants`` (tensors that are no
part of the model's state dict) and ``ties`` (names that share another's tensor). Tensors keep the
model's state-dict names. The file is named by the sha256 of its bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from swift_hapi.graph import codec, container, ir
from swift_hapi.graph import cuts as cuts_
from swift_hapi.graph.caps import DEFAULT, MAX_TENSORS, Caps
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.dryrun import MetaModel, check_writes
from swift_hapi.graph.functions import row_of
from swift_hapi.graph.ids import ids_below
from swift_hapi.graph.ir import Graph
from swift_hapi.graph.modules import bind, build, parameter
from swift_hapi.graph.operations import check_name
from swift_hapi.graph.program import Program
from swift_hapi.protocol.errors import ModelInvalid

FORMAT = "swift-hapi-extractor"
VERSION = 1
#: what a sample may be: an image or other tensor of numbers, or ids (of tokens, say)
INPUT_DTYPES = {"float32": torch.float32, "int64": torch.int64}
_KEYS = {"format", "version", "input", "nodes", "modules", "output", "constants", "ties"}


class Extractor:
    """The frozen part of a model: graph, weights, cuts; immutable and safe to share by threads.

    :param tensors: weights by state-dict name, used as they are, not copied
    :param input_shape: of one sample, e.g. (3, 224, 224)
    :param constants: names in ``tensors`` that are not in the model's state dict
    :param dtype: of the input: float32, or int64 for ids
    :param fixed: the graph holds for samples of ``input_shape`` only
    :param caps: what the graph may ask for
    :raises ModelInvalid: graph and tensors do not belong together, or the graph does not run
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Mapping[str, torch.Tensor],
        input_shape: tuple[int, ...] = (3, 224, 224),
        constants: frozenset[str] = frozenset(),
        digest: str | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        fixed: bool = False,
        caps: Caps = DEFAULT,
    ):
        self.graph = graph
        self.tensors = dict(tensors)
        self.input_shape = tuple(input_shape)
        self.dtype = dtype
        self.fixed = fixed
        self.constants = frozenset(constants)
        self._digest = digest
        check_writes(graph)
        #: ids in the input must be below this, if it takes ids and says so
        self.ids_below = ids_below(graph) if dtype == torch.int64 else None
        #: names of the nodes that depend on the input; all others are constants
        self.dependent = ir.input_dependent(graph.nodes, graph.input)
        self.meta = _meta_model(graph, self.tensors, dtype)
        self._caps = caps.with_weights(_weight_bytes(self.tensors))
        examined = cuts_.examine(self.meta, self.input_shape, self._caps)
        self.cuts: tuple[Cut, ...] = examined.cuts
        #: operations of one sample through all of it
        self.flops = examined.flops
        self._bind()

    def _bind(self) -> None:
        self.modules: dict[str, nn.Module] = {
            path: bind(module, path, self.tensors) for path, module in self.meta.modules.items()
        }
        self.known = _evaluate_constants(self)
        #: memory layout of the tensor at each cut; found when the first tail is made
        self.layouts: dict[str, tuple[int, ...]] | None = None

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of the file this extractor is or would be written as."""
        if self._digest is None:
            sha256 = hashlib.sha256()
            for piece in _pieces(self):
                sha256.update(piece)
            self._digest = f"sha256:{sha256.hexdigest()}"
        return self._digest

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, shared ones counted once."""
        every = {t.data_ptr(): t.nbytes for t in self.tensors.values()}
        known = (v for v in self.known.values() if torch.is_tensor(v))
        every |= {t.data_ptr(): t.nbytes for t in known}
        return sum(every.values())

    def resolve(self, split: str) -> Cut:
        """:raises BadCut: ``split`` is neither the name nor the index of a cut"""
        return cuts_.resolve(self.cuts, split)

    def cuts_for(self, input_shape: tuple[int, ...]) -> tuple[Cut, ...]:
        """The same cuts with the shapes they have for another input shape.

        :raises ModelInvalid: the extractor does not run on that shape
        """
        if tuple(input_shape) == self.input_shape:
            return self.cuts
        if self.fixed:
            raise ModelInvalid(
                f"it holds for samples of {'x'.join(map(str, self.input_shape))} only: conditions "
                "in the model were decided for that shape"
            )
        return cuts_.reshape_cuts(self.cuts, self.meta, tuple(input_shape), self._caps)

    def to(self, device: torch.device | str) -> Extractor:
        """A copy of this extractor on another device (itself if it is there already)."""
        device = torch.device(device)
        if all(tensor.device == device for tensor in self.tensors.values()):
            return self
        moved = object.__new__(Extractor)
        moved.__dict__.update(self.__dict__)
        moved.tensors = _keep_ties(self.tensors, lambda tensor: tensor.to(device))
        moved._bind()
        return moved

    def skeleton(self) -> Extractor:
        """A copy without weights: it knows its cuts, shapes and memory, and cannot run."""
        bare = object.__new__(Extractor)
        bare.__dict__.update(self.__dict__)
        bare.tensors, bare.modules, bare.known = {}, {}, {}
        return bare

    def resolver(self, node: ir.Node):
        """The callable behind a node."""
        if node.op == ir.MODULE:
            return self.modules[node.target]
        return row_of(node.op, node.target).call


def _weight_bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors.values()}.values())


def _keep_ties(tensors: Mapping[str, torch.Tensor], change) -> dict[str, torch.Tensor]:
    done: dict[int, torch.Tensor] = {}
    return {
        name: done.setdefault(id(tensor), change(tensor)) if id(tensor) not in done
        else done[id(tensor)]
        for name, tensor in tensors.items()
    }  # fmt: skip


def _meta_model(
    graph: Graph, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype
) -> MetaModel:
    """Modules on the meta device, after checking that ``tensors`` are exactly what they and the
    ``attr`` nodes need."""
    modules = {path: build(spec, path) for path, spec in graph.modules.items()}
    wanted: set[str] = set()
    for path, module in modules.items():
        for key, want in module.state_dict().items():
            name = f"{path}.{key}"
            wanted.add(name)
            have = tensors.get(name)
            if have is None:
                raise ModelInvalid(f"tensor '{name}' is missing")
            if (have.shape, have.dtype) != (want.shape, want.dtype):
                raise ModelInvalid(
                    f"tensor '{name}' is {have.dtype} {list(have.shape)}, "
                    f"its module needs {want.dtype} {list(want.shape)}"
                )
    attrs = {node.target for node in graph.nodes if node.op == ir.ATTR}
    for name in attrs - set(tensors):
        raise ModelInvalid(f"tensor '{name}' is missing")
    for name in sorted(set(tensors) - wanted - attrs):
        raise ModelInvalid(f"tensor '{name}' is never used")
    meta = {name: torch.empty_like(tensors[name], device="meta") for name in attrs}
    return MetaModel(graph, modules, meta, {}, dtype)


def _evaluate_constants(extractor: Extractor) -> dict[str, object]:
    """Values of the nodes that do not depend on the input, computed once.

    :raises ModelInvalid: one of them fails on its real tensors (an index out of range, say)
    """
    graph, dependent = extractor.graph, extractor.dependent
    read = {name for node in graph.nodes if node.name in dependent for name in node.refs()}
    constant = [node for node in graph.nodes if node.name not in dependent]
    last_use = {name: at for at, node in enumerate(constant) for name in node.refs()}
    values: dict[str, object] = {}
    with torch.no_grad():
        for at, node in enumerate(constant):
            if node.op == ir.ATTR:
                values[node.name] = parameter(extractor.tensors[node.target])
                continue
            try:
                program = Program([node], "", node.name, extractor.resolver, values)
                values[node.name] = program(None)
            except Exception as error:
                raise ModelInvalid(f"node '{node.name}': {str(error)[:200]}") from error
            for name in set(node.refs()):
                if last_use[name] == at and name not in read:
                    del values[name]
    return {name: value for name, value in values.items() if name in read}


def _pieces(extractor: Extractor):
    ties, stored, first = {}, {}, {}
    for name in sorted(extractor.tensors):
        tensor = extractor.tensors[name]
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in first:
            ties[name] = first[key]
        else:
            first[key] = name
            stored[name] = tensor
    document = {
        "format": FORMAT,
        "version": VERSION,
        "input": {
            "shape": list(extractor.input_shape),
            "dtype": str(extractor.dtype).removeprefix("torch."),
            "fixed": extractor.fixed,
        },
        "constants": sorted(extractor.constants),
        "ties": ties,
        **codec.encode_graph(extractor.graph),
    }
    return container.pieces(stored, codec.dumps(document).decode("ascii"))


def extractor_bytes(extractor: Extractor) -> bytes:
    """The file's bytes; for small ones.

    :raises ModelInvalid: the graph has something a file cannot hold
    """
    return b"".join(_pieces(extractor))


def save_extractor(extractor: Extractor, path: str | os.PathLike) -> str:
    """Write the file (to a temporary name in the same directory, then renamed).

    :returns: ``sha256:<hex>`` of its bytes; the same model always gives the same bytes
    :raises ModelInvalid: the graph has something a file cannot hold
    """
    path = Path(path)
    sha256 = hashlib.sha256()
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            for piece in _pieces(extractor):
                sha256.update(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    extractor._digest = f"sha256:{sha256.hexdigest()}"
    return extractor._digest


def load_extractor(source: str | os.PathLike | bytes, caps: Caps = DEFAULT) -> Extractor:
    """Read and check an extractor file; nothing in it is executed.

    :param source: a path, or the file's bytes
    :param caps: what the file may ask for
    :raises ModelInvalid: anything in the file that is not as it should be
    :raises OSError: the path cannot be read
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        size = memoryview(source).nbytes
        text, tensors, digest = container.read(io.BytesIO(source), size, caps.parameter_bytes)
    else:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            text, tensors, digest = container.read(file, size, caps.parameter_bytes)
    document = codec.loads(text)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelInvalid("this is no extractor file")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ModelInvalid(
            f"the extractor file is of version {str(version)[:20]}, this program reads {VERSION}: "
            "export it again with the release that the storage side runs"
        )
    if set(document) != _KEYS:
        odd = sorted(set(document) ^ _KEYS)
        raise ModelInvalid(f"members missing or unknown: {', '.join(odd)[:200]}")
    constants = document["constants"]
    if not isinstance(constants, list) or not all(isinstance(n, str) for n in constants):
        raise ModelInvalid("'constants' must be an array of names")
    tensors = _untie(tensors, document["ties"])
    for name in set(constants) - set(tensors):
        raise ModelInvalid(f"constant '{name[:80]}' has no tensor")
    graph = codec.decode_graph(document)
    shape, dtype, fixed = _input(document["input"])
    return Extractor(
        graph,
        tensors,
        shape,
        frozenset(constants),
        f"sha256:{digest}",
        dtype=dtype,
        fixed=fixed,
        caps=caps,
    )


def _untie(tensors: dict[str, torch.Tensor], ties: object) -> dict[str, torch.Tensor]:
    if not isinstance(ties, dict) or len(ties) + len(tensors) > MAX_TENSORS:
        raise ModelInvalid("'ties' must be an object, and not name too many tensors")
    whole = dict(tensors)
    for alias, name in ties.items():
        check_name(alias, "a tensor")
        if alias in whole or not isinstance(name, str) or name not in tensors:
            raise ModelInvalid(f"tensor '{alias}' is tied to nothing, or exists twice")
        whole[alias] = tensors[name]
    return whole


def _input(document: object) -> tuple[tuple[int, ...], torch.dtype, bool]:
    if not isinstance(document, dict) or set(document) != {"shape", "dtype", "fixed"}:
        raise ModelInvalid("'input' must have 'shape', 'dtype' and 'fixed'")
    shape, dtype, fixed = document["shape"], document["dtype"], document["fixed"]
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise ModelInvalid("the input must have one to four dimensions per sample")
    if not isinstance(dtype, str) or dtype not in INPUT_DTYPES or not isinstance(fixed, bool):
        raise ModelInvalid("the input must be float32 or int64, of a shape that is fixed or not")
    for size in shape:
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= 65_536:
            raise ModelInvalid("the input's shape must be positive integers")
    return tuple(shape), INPUT_DTYPES[dtype], fixed
