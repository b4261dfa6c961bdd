"""``<prefix>/hapi-names.json``: how the file of each sample was called before it was packed.

Most names are the key with one and the same extension behind it; only the others are listed. The
manifest has the ETag of the object, which is read by those who tell names, and by nobody else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hapi_compute.data.errors import DatasetError
from hapi_compute.data.listing import Dataset
from hapi_compute.data.manifest import NAMES
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import NotFound

_FORMAT, _VERSION = "hapi-names", 1


@dataclass(frozen=True)
class Names:
    """``others`` are names that are not their key with ``suffix`` behind it.

    Without a ``suffix`` nothing is known of any other key.
    """

    suffix: str | None
    others: Mapping[str, str]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> Names:
        """:param pairs: key and name of each sample"""
        pairs = list(pairs)
        counts = Counter(n[len(k) :] for k, n in pairs if n.startswith(k))
        # Of equally frequent ones always the same, whatever order they came in.
        suffix = min(counts, key=lambda each: (-counts[each], each), default="")
        return cls(suffix, {key: name for key, name in pairs if name != key + suffix})

    def __call__(self, key: str) -> str | None:
        """Name of the file that the sample with ``key`` was; None: not known."""
        return self.others.get(key, None if self.suffix is None else key + self.suffix)

    def to_json(self) -> bytes:
        """Deterministic for equal names."""
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "suffix": self.suffix,
            "names": dict(self.others),
        }
        return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Names:
        """:raises DatasetError: not of a version we know; names ``where``"""
        try:
            document = json.loads(text)
            if (document["format"], document["version"]) != (_FORMAT, _VERSION):
                raise DatasetError(f"{where}: is no {_FORMAT!r} version {_VERSION}")
            return cls(
                str(document["suffix"]), {str(k): str(n) for k, n in document["names"].items()}
            )
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DatasetError(f"{where}: holds no names of files: {error!r}") from None


class _Same:
    def __call__(self, key: str) -> str | None:
        return key


def read_names(store: SwiftClient, dataset: Dataset) -> Names | _Same:
    """What tells the name of a sample's file by its key: None where nothing does, as in a dataset
    of an earlier release. The key of a single-sample object is its name.

    :raises Overwritten: the names are of another dataset than the one listed
    :raises DatasetError: they cannot be read
    """
    if dataset.names is None:
        return _Same() if dataset.single else Names(None, {})
    name = dataset.url.name(NAMES)
    try:
        body = store.get(dataset.url.container, name, if_match=dataset.names).body
    except NotFound:
        return Names(None, {})
    return Names.from_json(body, f"{dataset.url.container}/{name}")
