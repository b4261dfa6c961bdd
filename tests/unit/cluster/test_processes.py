import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from swift_hapi.cluster.processes import ProcessId, signal_group, start_bound

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeper(tmp_path):
    process = start_bound(SLEEP, tmp_path / "log", tmp_path)
    yield process
    process.kill()
    process.wait()


def test_identity_is_number_and_start(sleeper):
    known = ProcessId.of(sleeper.pid)
    assert known.alive()
    assert not replace(known, start=known.start + 1).alive()


def test_zombie_is_not_alive(sleeper):
    known = ProcessId.of(sleeper.pid)
    os.kill(sleeper.pid, signal.SIGKILL)
    assert known.wait_gone(10)
    assert sleeper.returncode is None  # nobody has asked for its status yet


def test_waiting_for_one_that_stays(sleeper):
    assert not ProcessId.of(sleeper.pid).wait_gone(0)


def test_no_such_process(sleeper):
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(ProcessLookupError):
        ProcessId.of(sleeper.pid)
    assert not signal_group(sleeper.pid, signal.SIGTERM)


def test_group_of_its_own(sleeper):
    assert os.getpgid(sleeper.pid) == sleeper.pid
    assert signal_group(sleeper.pid, signal.SIGTERM)
    assert sleeper.wait(10) == -signal.SIGTERM


def test_output_goes_to_the_log(tmp_path):
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    start_bound([sys.executable, "-c", code], tmp_path / "log", tmp_path).wait(10)
    assert (tmp_path / "log").read_text().split() == ["out", "err"]


def test_child_dies_with_its_parent(tmp_path):
    code = (
        "import sys, pathlib\n"
        "from swift_hapi.cluster.processes import start_bound\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "print(start_bound(sys.argv[2:], here / 'log', here).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), *SLEEP],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        child = ProcessId.of(int(parent.stdout.readline()))
        assert child.alive()
        parent.kill()
    deadline = time.monotonic() + 30
    while child.alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
