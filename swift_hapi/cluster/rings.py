"""Build the rings: ``python -m swift_hapi.cluster.rings`` with a JSON list of rings on stdin.

A ring is ``{"path", "replicas", "devices": [{"name", "port"}, ...]}``; every device gets a zone
of its own, so that replicas spread over all of them. A process of its own because it needs swift.
"""

from __future__ import annotations

import json
import sys

#: 2**8 partitions are balanced within a few per cent on up to 64 devices and build in no time.
PART_POWER = 8


def build(path: str, replicas: int, devices: list[dict]) -> None:
    """Write one ring file; every device is on 127.0.0.1."""
    from swift.common.ring import RingBuilder

    builder = RingBuilder(PART_POWER, replicas, min_part_hours=0)
    for zone, device in enumerate(devices, 1):
        builder.add_dev(
            {
                "region": 1,
                "zone": zone,
                "ip": "127.0.0.1",
                "port": device["port"],
                "replication_ip": "127.0.0.1",
                "replication_port": device["port"],
                "device": device["name"],
                "weight": 100.0,
                "meta": "",
            }
        )
    builder.rebalance(seed="swift-hapi")
    builder.get_ring().save(path)


def main() -> int:
    for ring in json.load(sys.stdin):
        build(ring["path"], ring["replicas"], ring["devices"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
