"""``<prefix>/hapi-dataset.json``: what ``hapi put`` knows about a dataset.

It is written after the last shard, so a dataset with a manifest is complete. Reading works
without one; then the number of classes must be given, and counts of samples are not known
beforehand.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from hapi_compute.data.errors import DatasetError

NAME = "hapi-dataset.json"
#: names of files, see :mod:`hapi_compute.data.names`
NAMES = "hapi-names.json"
FORMAT = "hapi-dataset"
VERSION = 1


@dataclass(frozen=True)
class ShardEntry:
    """One shard: its name below the prefix, md5 of its bytes, samples and bytes."""

    name: str
    etag: str
    samples: int
    bytes: int


@dataclass(frozen=True)
class Manifest:
    """``classes[label]`` is a class's name, ``class_counts[label]`` its number of samples.

    ``names`` is the ETag of ``hapi-names.json``, None where there is none; ``earlier`` are name
    and ETag of what the manifests before this one have left (:mod:`hapi_compute.data.leftovers`).
    A dataset without labels has no classes.
    """

    classes: tuple[str, ...]
    class_counts: tuple[int, ...]
    shards: tuple[ShardEntry, ...]
    seed: int = 0
    names: str | None = None
    earlier: tuple[tuple[str, str], ...] = ()

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` over classes, counts and shards: equal digests, equal datasets."""
        document = self._content()
        del document["seed"]  # What it did is in the shards.
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def to_json(self) -> bytes:
        """Deterministic for equal manifests."""
        document = {
            "format": FORMAT,
            "version": VERSION,
            "digest": self.digest,
            **self._content(),
        }
        if self.names is not None:
            document["names"] = self.names
        if self.earlier:
            document["earlier"] = [{"name": name, "etag": etag} for name, etag in self.earlier]
        return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    def _content(self) -> dict:
        return {
            "classes": list(self.classes),
            "class_counts": list(self.class_counts),
            "samples": self.samples,
            "seed": self.seed,
            "shards": [
                {"name": s.name, "etag": s.etag, "samples": s.samples, "bytes": s.bytes}
                for s in self.shards
            ],
        }

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Manifest:
        """:raises DatasetError: not a manifest of a version we know; names ``where``"""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT or document["version"] != VERSION:
                raise DatasetError(
                    f"{where}: format {document['format']!r} version {document['version']!r} is "
                    f"not {FORMAT!r} version {VERSION}"
                )
            manifest = cls(
                classes=tuple(str(name) for name in document["classes"]),
                class_counts=tuple(int(count) for count in document["class_counts"]),
                shards=tuple(
                    ShardEntry(str(s["name"]), str(s["etag"]), int(s["samples"]), int(s["bytes"]))
                    for s in document["shards"]
                ),
                seed=int(document.get("seed", 0)),
                names=None if document.get("names") is None else str(document["names"]),
                earlier=tuple(
                    (str(each["name"]), str(each["etag"]))
                    for each in document.get("earlier", ())
                ),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DatasetError(f"{where}: no valid dataset manifest: {error!r}") from None
        if len(manifest.classes) != len(manifest.class_counts):
            raise DatasetError(f"{where}: classes and class_counts differ in length")
        # Manifests of the first releases have none.
        if document.get("digest", manifest.digest) != manifest.digest:
            raise DatasetError(f"{where}: does not have the digest that it says it has")
        return manifest
