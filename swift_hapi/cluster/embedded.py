"""Start and stop an embedded cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from swift_hapi.cluster import blueprint, control, layout, probe
from swift_hapi.cluster.conffiles import Ports
from swift_hapi.cluster.config import ClusterConfig
from swift_hapi.cluster.errors import ClusterError, PortTaken
from swift_hapi.cluster.layout import Layout
from swift_hapi.cluster.plan import DETACH, READY, Plan
from swift_hapi.cluster.ports import free_ports
from swift_hapi.cluster.state import State

_TRIES = 4  #: with other ports each time
_POLL = 0.05
_TAIL = 20  #: lines of a failed server's log to show
#: restarts before readiness after which an engine is taken for broken
_ENGINE_CHANCES = 2


class EmbeddedCluster:
    """A Swift of one machine that ends with its ``with`` block, or with this process.

    ``auth_url, user, key, storage_url, token, engine_socket, pids`` tell how to use it. For one
    that lives on, call :meth:`start` and :meth:`detach`; :func:`swift_hapi.cluster.shut_down`
    ends it.
    """

    def __init__(self, config: ClusterConfig):
        self.config = config
        self.auth_url = ""
        self.user = config.users[0].name
        self.key = config.users[0].key
        self.storage_url = ""
        self.token = ""
        self.engine_socket: str | None = None
        self._layout: Layout | None = None
        self._supervisor: subprocess.Popen | None = None
        self._lifeline: int | None = None

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(self, *_exc) -> None:
        self.stop()

    @property
    def dir(self) -> Path:
        return self.config.dir

    @property
    def pids(self) -> dict[str, int]:
        """Name to pid of everything that runs just now; empty when nothing does."""
        state = control.running_state(self.dir)
        return {} if state is None else state.pids()

    @property
    def info(self) -> control.ClusterInfo:
        return control.ClusterInfo(
            auth_url=self.auth_url,
            user=self.user,
            key=self.key,
            storage_url=self.storage_url,
            token=self.token,
            dir=str(self.dir),
            engine_socket=self.engine_socket,
            pids=self.pids,
        )

    def status(self) -> State | None:
        """State of the supervisor and of every server; None when nothing runs."""
        return control.running_state(self.dir)

    def start(self) -> EmbeddedCluster:
        """Boot, and return when everything answers.

        :raises ClusterError: a program is missing, one runs in this directory already, something
            else lies in it, or a server failed: then the detail ends with the end of its log
        """
        if self._supervisor is not None:
            raise ClusterError(f"the cluster in {self.dir} is started already")
        layout.adopt(self.dir)
        lock = layout.lock(self.dir)
        if lock is None:
            raise ClusterError(f"a cluster runs in {self.dir} already")
        try:
            control.clean_up(self.dir)
            for chance in range(1, _TRIES + 1):
                try:
                    self._boot(lock)
                    break
                except PortTaken:
                    self._end()
                    if chance == _TRIES:
                        raise
        except BaseException:
            self._end()
            raise
        finally:
            os.close(lock)
        return self

    def detach(self) -> None:
        """Let the cluster outlive this process."""
        os.write(self._lifeline, DETACH)
        deadline = time.monotonic() + control.STOP_TIMEOUT
        self._wait("supervisor", lambda: self._state_is("detached"), deadline)
        os.close(self._lifeline)
        self._lifeline = self._supervisor = None

    def stop(self) -> None:
        """End all servers and remove device data; logs and configuration stay."""
        self._end()

    def _boot(self, lock: int) -> None:
        config = self.config
        deadline = time.monotonic() + config.start_timeout
        memcached = blueprint.find_memcached()
        layout.sweep(layout.SHM)
        self._layout = layout.prepare(config.dir, config.data_dir, blueprint.device_names(config))
        claimed = layout.claim(self._layout.data)
        try:
            numbers = free_ports(4 + config.object_devices)
            ports = Ports(*numbers[:4], objects=tuple(numbers[4:]))
            blueprint.write_conf(self._layout, config, ports)
            blueprint.build_rings(self._layout, config, ports)
            plan = blueprint.plan(self._layout, config, ports, memcached)
            self.auth_url = plan.access["auth_url"]
            self.engine_socket = plan.access["engine_socket"]
            self._start_supervisor(plan, (lock, claimed))
        except BaseException:
            if self._supervisor is None:
                layout.remove(self._layout.transient)
            raise
        finally:
            os.close(claimed)
        self._wait_ready(ports, deadline)
        os.write(self._lifeline, READY)
        self._wait("supervisor", lambda: self._state_is("ready"), deadline)

    def _start_supervisor(self, plan: Plan, locks: tuple[int, ...]) -> None:
        plan_file = self._layout.run / "plan.json"
        plan.dump(plan_file)
        reader, writer = os.pipe()
        try:
            with open(self._layout.log("supervisor"), "ab") as out:
                self._supervisor = subprocess.Popen(
                    [sys.executable, "-m", "swift_hapi.cluster.supervisor", str(plan_file)],
                    stdin=reader,
                    stdout=out,
                    stderr=out,
                    cwd=self.dir,
                    start_new_session=True,
                    pass_fds=locks,
                )
            self._lifeline = writer
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)

    def _wait_ready(self, ports: Ports, deadline: float) -> None:
        self._wait("memcached", lambda: probe.memcached_answers(ports.memcached), deadline)
        local = "127.0.0.1"
        servers = {"account": (local, ports.account), "container": (local, ports.container)}
        servers |= {n: (local, port) for n, port in blueprint.object_servers(ports).items()}
        servers["proxy"] = (self.config.proxy_host, ports.proxy)
        for name, place in servers.items():
            self._wait(name, lambda place=place: probe.healthy(*place), deadline)
        trouble = []

        def served() -> bool:
            # Every time: a token may live shorter than the start takes.
            self.storage_url, self.token = probe.authenticate(self.auth_url, self.user, self.key)
            trouble[:] = [probe.round_trip(self.storage_url, self.token)]
            return trouble == [None]

        self._wait("proxy", served, deadline, trouble)
        if self.config.hapi:
            engine = self._layout.engine_socket
            self._wait("engine", lambda: probe.engine_ready(engine), deadline)

    def _wait(
        self,
        name: str,
        condition: Callable[[], bool],
        deadline: float,
        trouble: list[str | None] | None = None,
    ) -> None:
        """Wait for ``condition``, watching for servers that fail meanwhile."""
        while not condition():
            self._raise_if_failed()
            if time.monotonic() > deadline:
                said = f" ({trouble[0]})" if trouble and trouble[0] else ""
                raise ClusterError(
                    f"{name} is not ready after {self.config.start_timeout:g} s{said}"
                    + self._tail(name)
                )
            time.sleep(_POLL)

    def _raise_if_failed(self) -> None:
        if self._supervisor.poll() is not None:
            raise ClusterError("the supervisor ended" + self._tail("supervisor"))
        state = control.running_state(self.dir)
        for name, server in ({} if state is None else state.servers).items():
            if server.exit_code is None:
                continue
            if name == "engine" and server.restarts < _ENGINE_CHANCES:
                continue
            tail = self._tail(name)
            kind = PortTaken if _port_taken(tail) else ClusterError
            raise kind(f"{name} ended with exit status {server.exit_code}{tail}")

    def _state_is(self, flag: str) -> bool:
        state = control.running_state(self.dir)
        return state is not None and getattr(state, flag)

    def _tail(self, name: str) -> str:
        path = self._layout.log(name)
        with suppress(FileNotFoundError):
            lines = path.read_text(errors="replace").splitlines()[-_TAIL:]
            return "\n".join([f"; the end of {path}:", *lines])
        return f"; there is no {path}"

    def _end(self) -> None:
        """End the supervisor, if any, and wait for it; safe to call again."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        if self._supervisor is None:
            return
        try:
            self._supervisor.wait(control.STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.wait()
        self._supervisor = None
        control.clean_up(self.dir)


def _port_taken(log: str) -> bool:
    said = ("Could not bind to", "Address already in use", "failed to listen on TCP port")
    return any(words in log for words in said)
