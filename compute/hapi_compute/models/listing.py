"""The models known by name, and the weights there are for each."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict, dataclass

from torchvision import models

from hapi_compute.models import architectures
from hapi_compute.models.weights import PACKAGES


@dataclass(frozen=True)
class ListedModel:
    """:param weights: values of ``--weights`` besides random:SEED, none and files"""

    name: str
    library: str
    weights: tuple[str, ...]

    def to_dict(self) -> dict:
        return {**asdict(self), "weights": list(self.weights)}


def list_models(pattern: str = "*") -> list[ListedModel]:
    """Models whose name matches a shell pattern, torchvision's first, each library by name. A
    word without wildcards that is no name finds all that contain it."""
    found = _matching(pattern)
    if not found and not set(pattern) & set("*?["):
        found = _matching(f"*{pattern.lower()}*")
    return found


def _matching(pattern: str) -> list[ListedModel]:
    found = [
        ListedModel(
            name,
            architectures.TORCHVISION,
            ("default", *(w.name for w in models.get_model_weights(name))),
        )
        for name in sorted(models.list_models(module=models))
        if fnmatch.fnmatchcase(name, pattern)
    ]
    try:
        timm = architectures.timm()
    except ValueError:
        return found
    pretrained = set(timm.list_models(pretrained=True))
    packages = {package.model: f"package:{name}" for name, package in PACKAGES.items()}
    # With the tags of its weights, a name says which ones: timm/resnet50.a1_in1k.
    tagged = {name.partition(".")[0] for name in pretrained}
    for name in sorted(timm.list_models()):
        full = f"timm/{name}"
        if fnmatch.fnmatchcase(full, pattern):
            weights = [packages[name]] if name in packages else []
            weights += ["default"] if name in tagged else []
            found.append(ListedModel(full, architectures.TIMM, tuple(weights)))
    return found
