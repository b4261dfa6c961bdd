import pytest

from swift_hapi.cluster import control, state
from swift_hapi.cluster.processes import ProcessId
from swift_hapi.cluster.state import ServerState, State

STATE = State(
    supervisor=ProcessId(1, 2),
    ready=True,
    servers={
        "proxy": ServerState(ProcessId(3, 4)),
        "engine": ServerState(None, restarts=5, exit_code=-9),
    },
    access={"user": "a:b", "engine_socket": None},
    transient=["/x"],
)


def test_round_trip(tmp_path):
    path = tmp_path / "state.json"
    state.write(path, STATE)
    assert state.read(path) == STATE
    assert path.stat().st_mode & 0o777 == 0o600
    assert [child.name for child in tmp_path.iterdir()] == ["state.json"]


def test_pids_of_what_runs():
    assert STATE.pids() == {"supervisor": 1, "proxy": 3}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"servers": {}, "supervisor": {}}'])
def test_foreign_file_is_no_state(tmp_path, text):
    (tmp_path / "state.json").write_text(text)
    assert state.read(tmp_path / "state.json") is None


def test_no_file_is_no_state(tmp_path):
    assert state.read(tmp_path / "state.json") is None


def test_state_of_a_dead_supervisor_counts_as_none(tmp_path):
    # Pid 1 lives, but did not start at tick 2: the number has been used again.
    state.write(tmp_path / "state.json", STATE)
    assert control.running_state(tmp_path) is None
    assert control.find(tmp_path) is None
    assert not control.shut_down(tmp_path)
    assert not (tmp_path / "state.json").exists()
