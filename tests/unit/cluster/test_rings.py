import json
import subprocess
import sys

# In a process of its own: swift's eventlet has no place in this one.
READ = """
import json, sys
from swift.common.ring import RingData
ring = RingData.load(sys.argv[1])
json.dump([ring.devs, [list(row) for row in ring._replica2part2dev_id]], sys.stdout)
"""


def test_replicas_of_a_partition_lie_on_different_devices(tmp_path):
    devices = [{"name": f"d{number}", "port": 6000 + number} for number in range(4)]
    path = tmp_path / "object.ring.gz"
    request = [{"path": str(path), "replicas": 3, "devices": devices}]
    argv = [sys.executable, "-m", "swift_hapi.cluster.rings"]
    subprocess.run(argv, input=json.dumps(request), text=True, check=True)

    read = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, check=True)
    known, table = json.loads(read.stdout)
    assert {device["device"]: device["port"] for device in known} == {
        device["name"]: device["port"] for device in devices
    }
    partitions = list(zip(*table, strict=True))
    assert all(len(set(partition)) == 3 for partition in partitions)
    counts = [sum(device["id"] in row for row in partitions) for device in known]
    assert max(counts) - min(counts) <= 2
