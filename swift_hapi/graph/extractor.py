"""Extractors: the frozen part of a model, ready to run, and how one is saved and loaded.

For the form of their files see :mod:`~swift_hapi.graph.extractor_file`.
"""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import nn

from swift_hapi.graph import cuts as cuts_
from swift_hapi.graph import extractor_file, ir
from swift_hapi.graph.caps import DEFAULT, Caps
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.dryrun import MetaModel, check_writes
from swift_hapi.graph.extractor_file import Contents
from swift_hapi.graph.functions import row_of
from swift_hapi.graph.ids import ids_below
from swift_hapi.graph.ir import Graph
from swift_hapi.graph.modules import bind, build, parameter
from swift_hapi.graph.program import Program
from swift_hapi.protocol.errors import ModelInvalid


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


def _pieces(extractor: Extractor) -> Iterator[bytes | memoryview]:
    return extractor_file.pieces(
        Contents(
            extractor.graph,
            extractor.tensors,
            extractor.input_shape,
            extractor.dtype,
            extractor.fixed,
            extractor.constants,
        )
    )


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
        contents, digest = extractor_file.read(io.BytesIO(source), size, caps.parameter_bytes)
    else:
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            contents, digest = extractor_file.read(file, size, caps.parameter_bytes)
    return Extractor(
        contents.graph,
        contents.tensors,
        contents.input_shape,
        contents.constants,
        f"sha256:{digest}",
        dtype=contents.dtype,
        fixed=contents.fixed,
        caps=caps,
    )
