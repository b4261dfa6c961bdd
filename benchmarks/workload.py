"""What the benchmarks of the compute tier train on and with: photos in Swift, and networks."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np

from benchmarks.photos import photo
from hapi_compute.data.manifest import NAME as MANIFEST_NAME
from hapi_compute.data.manifest import Manifest, ShardEntry
from hapi_compute.data.packing import build_tar
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.names import SwiftUrl
from swift_hapi.protocol.limits import Limits
from swift_hapi.protocol.transform import parse_transform
from swift_hapi.samples.decode import decode_sample
from swift_hapi.samples.shard import RawSample

CLASSES = 10
SIZE = (600, 427)  #: pixels of a photo; ~110 KB as JPEG


@dataclass(frozen=True)
class Network:
    """:param side: of the network's square input"""

    name: str
    model: str
    freeze_at: str
    side: int

    @property
    def transform(self) -> str:
        return (
            f"resize={self.side * 8 // 7}, crop={self.side}, mean=(0.485 0.456 0.406), "
            "std=(0.229 0.224 0.225)"
        )


#: of different shape: residual, dense, depthwise at low and at full resolution, plain, attention
NETWORKS = (
    Network("resnet18", "resnet18", "avgpool", 96),
    Network("densenet121", "densenet121", "features", 64),
    Network("mobilenet_v3_large", "mobilenet_v3_large", "avgpool", 224),
    Network("vgg11", "vgg11", "features", 64),
    Network("vit_tiny", "timm/vit_tiny_patch16_224", "fc_norm", 224),
)


def network(name: str) -> Network:
    return next(each for each in NETWORKS if each.name == name)


def upload_photos(client: SwiftClient, url: str, count: int, shard: int) -> float:
    """``count`` photos in shards; mean bytes of a photo."""
    return _upload(client, url, count, shard, lambda n: ("jpg", photo(n, *SIZE)))


def upload_tensors(client: SwiftClient, url: str, count: int, shard: int, transform: str) -> float:
    """The same photos, decoded and transformed beforehand, as float32 arrays."""
    spec = parse_transform(transform)

    def tensor(number: int) -> tuple[str, bytes]:
        image = RawSample(0, str(number), -1, "image", memoryview(photo(number, *SIZE)))
        stream = io.BytesIO()
        np.save(stream, decode_sample(image, spec, Limits()))
        return "npy", stream.getvalue()

    return _upload(client, url, count, shard, tensor)


def _upload(client: SwiftClient, url: str, count: int, shard: int, sample) -> float:
    target = SwiftUrl.parse(url)
    client.put_container(target.container)
    entries, size = [], 0
    for number, start in enumerate(range(0, count, shard)):
        members = []
        for i in range(start, min(start + shard, count)):
            kind, content = sample(i)
            size += len(content)
            members.append((f"{i:06d}", kind, i % CLASSES, content))
        body = build_tar(members)
        name = f"shard-{number:06d}.tar"
        answer = client.put(target.container, target.name(name), body, content_type="x/tar")
        etag = answer.headers["ETag"].strip('"')
        entries.append(ShardEntry(name, etag, len(members), len(body)))
    manifest = Manifest(
        tuple(map(str, range(CLASSES))), (count // CLASSES,) * CLASSES, tuple(entries)
    )
    client.put(
        target.container, target.name(MANIFEST_NAME), manifest.to_json(),
        content_type="application/json",
    )  # fmt: skip
    return size / count
