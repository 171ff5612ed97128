"""The cost of a worker of `sidecar run`, from exec to its first answer: CPU time, as the machine has other work.

    make bench NAME=start [ARGS="--rounds 20"]

The worker is killed, and a client waits in its port. The broker behind it is a few lines long. Without compiled
modules (PYTHONDONTWRITEBYTECODE) most of the time goes into compiling, each time anew.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.common import finish, median
from sidecar.drill.processes import Process, free_ports, wait_until
from sidecar.wire.frames import request_frame

FETCH, CORRELATION = 1, 7
"""An API that a sidecar does not look into."""
ASKED = request_frame(FETCH, 4, CORRELATION, "bench", False, b"")
ANSWER = struct.pack(">ii", 4, CORRELATION)
PATIENCE_S = 60.0


def serve(conn: socket.socket) -> None:
    """As a broker: the same answer to whatever is asked."""
    with conn:
        while conn.recv(10_000):
            conn.sendall(ANSWER)


def accept(broker: socket.socket) -> None:
    while True:
        threading.Thread(target=serve, args=broker.accept()[:1], daemon=True).start()


def used_ms(pid: int) -> float:
    """CPU time of all threads of a process so far."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e6


def first_answer(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(ASKED)
        assert client.recv(100) == ANSWER


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=10)
    rounds = ap.parse_args().rounds
    broker = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, args=(broker,), daemon=True).start()
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "sidecar.cli.main", "run", "--listen", f"127.0.0.1:{port}", "--node-id", "1"]
    command += ["--broker", f"127.0.0.1:{broker.getsockname()[1]}"]
    took_ms = []
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        sidecar = Process("sidecar", command, Path(tmp) / "sidecar.log").start()
        try:
            wait_until("the sidecar to listen", lambda: listens(port), PATIENCE_S, [sidecar])
            first_answer(port)
            for _ in range(rounds):
                sidecar.kill_worker()
                first_answer(port)
                took_ms.append(used_ms(sidecar.worker_pid))
        finally:
            sidecar.kill()
    finish({"benchmark": "start", "cpu_ms": round(median(took_ms)), "max_ms": round(max(took_ms)), "rounds": rounds})
    return 0


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    sys.exit(main())
