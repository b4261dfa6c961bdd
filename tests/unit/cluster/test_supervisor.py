"""The supervisor with small programs in the place of servers."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from swift_hapi.cluster import state as state_json
from swift_hapi.cluster import supervisor as module
from swift_hapi.cluster.plan import DETACH, READY, Plan, ServerPlan
from swift_hapi.cluster.processes import ProcessId

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"""
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
{SLEEP}
"""


def wait_until(condition, what, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.01)
    return result


class Run:
    """A supervisor process on ``{name: program}``; names in ``restart`` are restarted."""

    def __init__(self, directory, programs, restart=()):
        self.directory = directory
        self.transient = directory / "transient"
        self.transient.mkdir()
        self.state_file = directory / "state.json"
        plan = Plan(
            cwd=str(directory),
            starter=os.getpid(),
            state_file=str(self.state_file),
            access={"user": "u"},
            transient=(str(self.transient),),
            servers=tuple(
                ServerPlan(
                    name=name,
                    argv=(sys.executable, "-c", program),
                    log=str(directory / f"{name}.log"),
                    pid_file=str(directory / f"{name}.pid"),
                    restart=name in restart,
                )
                for name, program in programs.items()
            ),
        )
        plan.dump(directory / "plan.json")
        assert Plan.load(directory / "plan.json") == plan
        self.process = subprocess.Popen(
            [sys.executable, "-m", "swift_hapi.cluster.supervisor", directory / "plan.json"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        wait_until(self.state, "state.json")

    def state(self):
        return state_json.read(self.state_file)

    def server(self, name):
        return self.state().servers[name]

    def restarted(self, name, times):
        wait_until(
            lambda: self.server(name).restarts >= times and self.server(name).process is not None,
            f"restart {times} of {name}",
        )
        return self.server(name).process

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)
        return self.process.stderr.read().decode()


@pytest.fixture
def run(tmp_path):
    runs = []

    def start(programs, **options):
        runs.append(Run(tmp_path, programs, **options))
        return runs[-1]

    yield start
    for started in runs:
        started.process.terminate()
        started.process.wait(30)
        started.process.stdin.close()
        started.process.stderr.close()


def test_closed_pipe_ends_and_removes_everything(run):
    started = run({"a": SLEEP, "b": SLEEP})
    processes = [server.process for server in started.state().servers.values()]
    assert all(process.alive() for process in processes)
    assert (started.directory / "a.pid").read_text() == f"{processes[0].pid}\n"
    assert "let go" in started.end()
    assert not any(process.alive() for process in processes)
    assert not started.transient.exists()
    assert not started.state_file.exists()


def test_sigterm_ends_everything(run):
    started = run({"a": SLEEP})
    process = started.server("a").process
    started.process.terminate()
    assert started.process.wait(30) == 0
    assert not process.alive()
    assert not started.state_file.exists()


def test_server_that_does_not_heed_is_killed(run):
    started = run({"a": STUBBORN})
    wait_until((started.directory / "a.log").read_text, "the program's first word")
    process = started.server("a").process
    started.end()
    assert not process.alive()


def test_children_of_a_server_end_with_it(run):
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]);"
    program += "p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    started = run({"a": program})
    log = started.directory / "a.log"
    grandchild = ProcessId.of(int(wait_until(log.read_text, "the grandchild's pid")))
    started.end()
    assert grandchild.wait_gone(10)


def test_killed_server_is_restarted_when_planned(run):
    started = run({"a": SLEEP, "b": SLEEP}, restart=("a",))
    first = started.server("a").process
    os.kill(first.pid, signal.SIGKILL)
    second = started.restarted("a", 1)
    assert second != first
    assert second.alive()
    assert started.server("a").exit_code == -signal.SIGKILL
    assert (started.directory / "a.pid").read_text() == f"{second.pid}\n"
    assert started.server("b").restarts == 0


def test_killed_server_stays_down_when_not_planned(run):
    started = run({"a": SLEEP, "b": SLEEP})
    os.kill(started.server("a").process.pid, signal.SIGKILL)
    wait_until(lambda: started.server("a").exit_code == -signal.SIGKILL, "notice of the death")
    assert started.server("a").process is None
    assert started.state().pids().keys() == {"supervisor", "b"}
    assert not (started.directory / "a.pid").exists()
    assert started.server("b").process.alive()


def test_back_off_doubles(run):
    started = run({"a": "raise SystemExit(3)"}, restart=("a",))
    wait_until(lambda: started.server("a").restarts >= 3, "3 restarts")
    assert started.server("a").exit_code == 3
    said = started.end()
    assert [f"again in {wait} s" in said for wait in ("0.2", "0.4", "0.8")] == [True] * 3


def test_back_off_ends_and_is_forgotten(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    plan = ServerPlan(
        name="a",
        argv=(sys.executable, "-c", "pass"),
        log=str(tmp_path / "log"),
        pid_file=str(tmp_path / "pid"),
        restart=True,
    )
    server = module.Server(plan, tmp_path)
    waits = []
    for lifetime in (0, 0, 0, 0, 0, 0, 0, module.BACKOFF_FORGET + 1):
        server.start()
        server.process.wait()
        clock[0] += lifetime
        assert server.reap()
        waits.append(round(server.restart_at - clock[0], 6))
        assert not server.restart_if_due()
        clock[0] = server.restart_at
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 0.2]


def test_detached_one_outlives_the_pipe(run):
    started = run({"a": SLEEP})
    started.process.stdin.write(READY + DETACH)
    started.process.stdin.flush()
    wait_until(lambda: started.state().ready and started.state().detached, "both words heard")
    started.process.stdin.close()
    # Something that takes another turn of its loop shows that it has got over the end of file.
    os.kill(started.server("a").process.pid, signal.SIGKILL)
    wait_until(lambda: started.server("a").exit_code is not None, "notice of the death")
    assert started.process.poll() is None


def test_death_of_the_starter_is_noticed_though_its_fork_holds_the_pipe(tmp_path):
    """As with the worker processes of a data loader."""
    code = f"""
import json, os, subprocess, sys
from swift_hapi.cluster.plan import Plan
os.chdir({str(tmp_path)!r})
plan = json.load(open("plan.json")) | {{"starter": os.getpid()}}
json.dump(plan, open("plan.json", "w"))
reader, writer = os.pipe()
supervisor = [sys.executable, "-m", "swift_hapi.cluster.supervisor", "plan.json"]
process = subprocess.Popen(supervisor, stdin=reader, start_new_session=True)
fork = subprocess.Popen(["sleep", "600"], pass_fds=(writer,))
print(process.pid, fork.pid, flush=True)
sys.stdin.read()
"""
    plan = Plan(
        cwd=str(tmp_path), starter=0, state_file=str(tmp_path / "state.json"), servers=()
    )
    plan.dump(tmp_path / "plan.json")
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        supervisor, fork = map(ProcessId.of, map(int, starter.stdout.readline().split()))
        wait_until((tmp_path / "state.json").exists, "state.json")
        assert json.loads((tmp_path / "state.json").read_text())["supervisor"]["pid"]
        starter.kill()
    try:
        assert fork.alive()
        assert supervisor.wait_gone(30)
    finally:
        os.kill(fork.pid, signal.SIGKILL)
