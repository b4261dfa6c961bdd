"""Split a live model at a freeze point: an extractor and a trainable rest.

For the compute side: it works on live modules, which never come from a file.
"""

from __future__ import annotations

import copy
import difflib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from swift_hapi.graph import aliasing, classifier, ir
from swift_hapi.graph import cuts as cuts_
from swift_hapi.graph.cuts import Cut
from swift_hapi.graph.dryrun import MetaModel
from swift_hapi.graph.extractor import Extractor
from swift_hapi.graph.ir import Graph, ModuleSpec, Node
from swift_hapi.graph.modules import build, spec_of
from swift_hapi.graph.trace import Traced, trace
from swift_hapi.graph.trainable import TrainablePart
from swift_hapi.protocol.errors import BadCut, ModelInvalid

IMAGE = (3, 224, 224)


def _meta(traced: Traced, dtype: torch.dtype) -> MetaModel:
    modules = {}
    for path, spec in traced.graph.modules.items():
        if spec is None:
            modules[path] = copy.deepcopy(traced.modules[path]).to("meta").eval()
        else:
            modules[path] = build(spec, path)
    tensors = {
        name: torch.empty_like(tensor, device="meta") for name, tensor in traced.tensors.items()
    }
    return MetaModel(traced.graph, modules, tensors, traced.foreign, dtype)


def _freeze_cut(
    traced: Traced, cuts: Sequence[Cut], freeze_at: str, model: nn.Module
) -> Cut:
    """The cut of that name or index, or the last cut within the module of that path.

    :raises BadCut: neither exists
    """
    names = {cut.name for cut in cuts}
    paths = {path for path, _ in model.named_modules() if path}
    if freeze_at in paths and freeze_at not in names:
        inside = [
            cut
            for cut in cuts
            if f"{traced.scopes.get(cut.name, '')}.".startswith(f"{freeze_at}.")
        ]
        if not inside:
            raise BadCut(f"there is no place to cut within module '{freeze_at}'")
        return inside[-1]
    try:
        return cuts_.resolve(cuts, freeze_at)
    except BadCut as error:
        near = difflib.get_close_matches(freeze_at[:200], paths, n=5)
        modules = f"; modules: {', '.join(near)}" if near else ""
        raise BadCut(f"{error.detail}{modules}") from None


def model_cuts(
    model: nn.Module,
    input_shape: tuple[int, ...] = IMAGE,
    dtype: torch.dtype = torch.float32,
) -> tuple[Cut, ...]:
    """All cuts of a whole model; each can be a freeze point."""
    return cuts_.find_cuts(_meta(trace(model, input_shape, dtype), dtype), input_shape)


def _tensor_names(traced: Traced, nodes: Sequence[Node]) -> dict[str, torch.Tensor]:
    """Live tensors that ``nodes`` use, by state-dict name."""
    tensors: dict[str, torch.Tensor] = {}
    for node in nodes:
        if node.op == ir.ATTR:
            tensors[node.target] = traced.tensors[node.target]
        elif node.op == ir.MODULE:
            state = traced.modules[node.target].state_dict(keep_vars=True)
            tensors.update({f"{node.target}.{key}": value for key, value in state.items()})
    return tensors


def _add_spec(traced: Traced, node: Node, specs: dict[str, ModuleSpec]) -> None:
    """:raises ModelInvalid: the node's operation has no place in a file"""
    if node.op == ir.MODULE and node.target not in specs:
        # Again, for the error it raises when the type has no place in a file.
        specs[node.target] = spec_of(traced.modules[node.target], node.target)
    elif node.target in traced.foreign:
        place = traced.scopes.get(node.name, "")
        raise ModelInvalid(
            f"node '{node.name}' in module '{place}' calls "
            f"{node.target.removeprefix('python:')}, which extractor files cannot hold"
        )


def _hint(traced: Traced, cuts: Sequence[Cut], node: Node) -> str:
    """Where the model can be frozen although ``node`` cannot be part of a file."""
    order = {known.name: at for at, known in enumerate(traced.graph.nodes)}
    before = [cut for cut in cuts if cut.index and order[cut.name] < order[node.name]]
    return f"; freeze at '{before[-1].name}' or before" if before else ""


def _extractor(
    traced: Traced,
    cut: Cut,
    input_shape: tuple[int, ...],
    dtype: torch.dtype,
    names: set[str],
    cuts: Sequence[Cut],
) -> Extractor:
    nodes = ir.slice_to(traced.graph.nodes, cut.name)
    if nodes[0].op != ir.INPUT:
        raise ModelInvalid(f"cut '{cut.name}' does not depend on the input")
    specs: dict[str, ModuleSpec] = {}
    for node in nodes:
        try:
            _add_spec(traced, node, specs)
        except ModelInvalid as error:
            raise ModelInvalid(f"{error.detail}{_hint(traced, cuts, node)}") from None
    live = _tensor_names(traced, nodes)
    copies: dict[tuple, torch.Tensor] = {}
    tensors = {}
    for name, tensor in live.items():
        # A copy of our own, and so aligned: the model may go on changing. Ties stay ties.
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if key not in copies or not tensor.numel():
            copies[key] = tensor.detach().clone(memory_format=torch.contiguous_format)
        tensors[name] = copies[key]
    # Modules that became Identity (dropout) may have had children or buffers: none do.
    graph = Graph(nodes, specs, cut.name)
    return Extractor(
        graph,
        tensors,
        input_shape,
        frozenset(set(tensors) - names),
        dtype=dtype,
        fixed=traced.fixed,
    )


def make_extractor(
    model: nn.Module,
    freeze_at: str | None = None,
    input_shape: tuple[int, ...] = IMAGE,
    dtype: torch.dtype = torch.float32,
) -> Extractor:
    """The model from its input to ``freeze_at``, or the whole model, as an extractor.

    :param freeze_at: name or index of a cut, or the path of a module: then the last cut within
        it, that is, normally, its output
    :param input_shape: of one sample
    :param dtype: of one sample: float32, or int64 for ids
    :raises ModelInvalid: the model cannot be traced, or the frozen part has something that an
        extractor file cannot hold
    :raises BadCut: ``freeze_at`` is no cut and no module
    """
    traced = trace(model, input_shape, dtype)
    cuts = cuts_.find_cuts(_meta(traced, dtype), input_shape)
    cut = cuts[-1]
    if freeze_at is not None:
        cut = _freeze_cut(traced, cuts, freeze_at, model)
    return _extractor(traced, cut, input_shape, dtype, set(model.state_dict()), cuts)


def build_transfer(
    model: nn.Module,
    freeze_at: str,
    num_classes: int | None,
    seed: int,
    input_shape: tuple[int, ...] = IMAGE,
    dtype: torch.dtype = torch.float32,
) -> tuple[Extractor, TrainablePart]:
    """Split ``model`` for transfer learning; the model itself is left as it is.

    :param freeze_at: see :func:`make_extractor`
    :param num_classes: width of the new classifier layer; None keeps the model's own
    :param seed: of the new layer's weights, which depend on nothing else
    :returns: the frozen part, and the trainable rest (in the model's mode)
    :raises ModelInvalid: see :func:`make_extractor`; or weights are used on both sides of the
        freeze point; or there is no classifier layer to replace
    :raises BadCut: ``freeze_at`` is no cut and no module
    """
    traced = trace(model, input_shape, dtype)
    cuts = cuts_.find_cuts(_meta(traced, dtype), input_shape)
    cut = _freeze_cut(traced, cuts, freeze_at, model)
    state = model.state_dict(keep_vars=True)
    extractor = _extractor(traced, cut, input_shape, dtype, set(state), cuts)

    nodes = ir.slice_to(traced.graph.nodes, traced.graph.output, stop=cut.name)
    used = _tensor_names(traced, nodes)
    _check_disjoint(extractor, used, cut)
    modules = {n.target: traced.modules[n.target] for n in nodes if n.op == ir.MODULE}
    attrs = {n.target: traced.tensors[n.target] for n in nodes if n.op == ir.ATTR}
    aliases, leftover = _rest(state, set(extractor.tensors) | set(used))
    # One copy of everything at once, so that what is shared stays shared.
    modules, attrs, leftover = copy.deepcopy((modules, attrs, leftover))

    if num_classes is not None:
        generator = torch.Generator().manual_seed(seed)
        paths = classifier.find_classifier(nodes, traced.graph.output, modules)
        old = {classifier.width(modules[path]) for path in paths}
        for path in paths:
            modules[path] = classifier.new_layer(modules[path], num_classes, generator)
        _resize_unused(model, leftover, old, num_classes, generator)

    part = TrainablePart(
        nodes,
        cut.name,
        traced.graph.output,
        modules,
        attrs,
        traced.foreign,
        state,
        {name: tensor.detach() for name, tensor in leftover.items()},
        aliases,
        aliasing.overwrites(nodes, traced.graph.modules, [cut.name]) is not None,
    )
    return extractor, part


def _check_disjoint(extractor: Extractor, used: Mapping[str, torch.Tensor], cut: Cut) -> None:
    for name, tensor in used.items():
        if isinstance(tensor, nn.Parameter) and name in extractor.tensors:
            raise ModelInvalid(
                f"weight '{name}' is used before and after the freeze point '{cut.name}'"
            )


def _rest(
    state: Mapping[str, torch.Tensor], covered: set[str]
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Names of the state dict that the graph does not use: those that are a used tensor under a
    second name, and the others with their tensors (auxiliary heads)."""
    by_id = {id(state[name]): name for name in covered if name in state}
    aliases, leftover = {}, {}
    for name, tensor in state.items():
        if name in covered:
            continue
        if id(tensor) in by_id:
            aliases[name] = by_id[id(tensor)]
        else:
            leftover[name] = tensor
    return aliases, leftover


def _resize_unused(
    model: nn.Module,
    leftover: dict[str, torch.Tensor],
    widths: set[int],
    num_classes: int,
    generator: torch.Generator,
) -> None:
    """Auxiliary heads have as many outputs as the classifier: they follow it, or the state dict
    would not fit the architecture with ``num_classes``."""
    for path, module in model.named_modules():
        unused = f"{path}.weight" in leftover and classifier.is_classifier(module)
        if unused and classifier.width(module) in widths:
            layer = classifier.new_layer(module, num_classes, generator)
            leftover.update({f"{path}.{k}": v for k, v in layer.state_dict().items()})


def full_state_dict(extractor: Extractor, trainable: TrainablePart) -> dict[str, torch.Tensor]:
    """The whole model's state dict under its original names and in its original order, on the
    CPU; loads with ``strict=True`` into the architecture with as many classes.

    :raises ModelInvalid: the two do not belong together
    """
    whole = {n: t for n, t in extractor.tensors.items() if n not in extractor.constants}
    whole |= trainable.leftover
    whole |= {name: tensor.detach() for name, tensor in trainable.state_dict().items()}
    whole |= {a: whole[name] for a, name in trainable.aliases.items() if name in whole}
    missing = [name for name in trainable.names if name not in whole]
    odd = sorted(set(whole) - set(trainable.names))
    if missing or odd:
        raise ModelInvalid(
            "extractor and trainable part do not make one model; "
            f"missing {missing[:3]}, unknown {odd[:3]}"
        )
    state = OrderedDict((name, whole[name].cpu()) for name in trainable.names)
    # Versions of the modules' formats, which some of torchvision's models insist on.
    state._metadata = trainable.formats
    return state
