"""The socket that systemd hands over, and what the sidecar tells systemd. The launcher does what systemd does: socket
as descriptor 3, LISTEN_* of the very process that becomes the sidecar."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until, with_socket
from sidecar.process.log import make_logger
from sidecar.process.sockets import inherited_sockets
from sidecar.process.systemd import Notifier, keep_alive
from tests.inprocess import clock

pytestmark = pytest.mark.tier("test")

READS = """
import os, sys
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.process.sockets import inherited_sockets
try:
    (sock,) = inherited_sockets(sys.argv[1])
    print("socket", sock.getsockname()[1], sock.fileno() != 3, sock.get_inheritable())
except StartError as exc:
    print("refused", exc)
if len(sys.argv) > 2:
    sys.stdout.flush()
    os.execv(sys.executable, [*sys.orig_argv[:-1]])
"""


def launch(sock: socket.socket, *command: str, name: str = "clients", **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        with_socket(sock, *command, name=name),
        pass_fds=[sock.fileno()],
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@contextmanager
def bound(listening: bool = True) -> Iterator[tuple[socket.socket, int]]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if listening:
            sock.listen()
        yield sock, int(sock.getsockname()[1])


def received(sock: socket.socket, listen: str, *more: str, name: str = "clients") -> str:
    out, _ = launch(sock, "-c", READS, listen, *more, name=name).communicate(timeout=60)
    return out.strip()


def test_the_socket_is_taken_as_a_duplicate_that_a_child_does_not_inherit() -> None:
    with bound() as (sock, port):
        assert received(sock, f"0.0.0.0:{port}") == f"socket {port} True False"


def test_who_starts_anew_in_the_same_process_finds_it_again() -> None:
    with bound() as (sock, port):
        once, again = received(sock, f"0.0.0.0:{port}", "anew").splitlines()
        assert once == again == f"socket {port} True False"


@pytest.mark.tier("test")
def test_what_does_not_fit_is_refused_with_a_remedy() -> None:
    with bound() as (sock, port):
        assert "FileDescriptorName=clients" in received(sock, f"0.0.0.0:{port}", name="other")
        assert f"port {port}, but listen is 0.0.0.0:1" in received(sock, "0.0.0.0:1")
    with bound(listening=False) as (sock, port):
        assert "no listening TCP socket" in received(sock, f"0.0.0.0:{port}")


def test_variables_of_another_process_do_not_count() -> None:
    env = {"LISTEN_PID": str(os.getpid() + 1), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "clients"}
    assert inherited_sockets("127.0.0.1:1", env) == inherited_sockets("127.0.0.1:1", {}) == []


@contextmanager
def manager(folder: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(folder / "notify"))
        sock.settimeout(120)
        yield sock, {"NOTIFY_SOCKET": str(folder / "notify")}


def wait_for_notification(notified: socket.socket, word: bytes) -> None:
    """Raises TimeoutError. On a slow machine the sidecar asks for more time before it says that it is ready."""
    while word not in notified.recv(1000).split(b"\n"):
        pass


def test_the_manager_hears_that_the_loop_turns(tmp_path: Path) -> None:
    with manager(tmp_path) as (sock, env):
        notifier = Notifier(make_logger("info", "text"), {**env, "WATCHDOG_USEC": "60000"})
        assert notifier.watchdog_s == 0.06

        async def some_time() -> None:
            task = asyncio.get_running_loop().create_task(keep_alive(notifier))
            await asyncio.sleep(0.2)
            task.cancel()

        clock.run(some_time())
        sock.setblocking(False)
        heard = []
        while True:
            try:
                heard.append(sock.recv(100))
            except BlockingIOError:
                break
    assert set(heard) == {b"WATCHDOG=1"} and len(heard) >= 4


def test_a_watchdog_of_another_process_or_none() -> None:
    log = make_logger("info", "text")
    assert Notifier(log, {}).watchdog_s == 0
    assert Notifier(log, {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}).watchdog_s == 0


def test_a_manager_that_is_gone_is_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Notifier(make_logger("info", "text"), {"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
    said = capfd.readouterr()
    assert "service manager not reached" in said.out + said.err


class Asks(threading.Thread):
    """A client that wants the topics; it has one minute."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        self.topics: list[str] | None = None
        self.start()

    def run(self) -> None:
        self.topics = list(self._admin.list_topics(timeout=60).topics)


@pytest.mark.tier("all")
def test_clients_wait_in_the_socket_while_the_sidecar_is_away(tmp_path: Path) -> None:
    kafka = LocalKafka(tmp_path / "kafka", brokers=1)
    node = kafka.nodes[0]
    with socket.socket() as sock, manager(tmp_path) as (notified, env):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", node.sidecar_port))
        sock.listen(64)
        settings = {**kafka.sidecar_settings(node), **env}
        kafka.start_brokers()
        run = ("-m", "sidecar.cli.main", "run")
        process = None
        try:
            early = Asks(node.sidecar_port)
            with socket.create_connection(("127.0.0.1", node.sidecar_port)):  # connected, and nobody is there yet
                process = launch(sock, *run, **settings)
                wait_for_notification(notified, b"READY=1")
                wait_until("the early client's answer", lambda: early.topics is not None, 60, [])

            process.kill()
            process.wait()
            during = Asks(node.sidecar_port)
            process = launch(sock, *run, **settings)
            wait_until("the answer to who came in between", lambda: during.topics is not None, 60, [])
            wait_for_notification(notified, b"READY=1")

            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0, out
            wait_for_notification(notified, b"STOPPING=1")
            assert "inherited=True" in out
            socket.create_connection(("127.0.0.1", node.sidecar_port)).close()  # not refused
        finally:
            if process is not None:
                process.kill()
                process.communicate()
            kafka.stop()
