"""Measures the hop through the sidecar: a Java consumer's MB/s, and the latency added to a passed request.

    make bench NAME=passthrough [ARGS="--mb 1500 --rounds 3 --pings 4000"]

Both ways lead to the same broker and topic, in alternating rounds. Throughput is fetch.MB.sec of Kafka's own
ConsumerPerformance. Latency is that of one Metadata request at a time, alternating between both ways, from one process.
"""

from __future__ import annotations

import argparse
import socket
import time

from benchmarks.common import cpu_s, create_topic, finish, median, one_broker
from sidecar.drill.artifacts import KAFKA
from sidecar.drill.local import LocalKafka
from sidecar.drill.percentiles import percentile
from sidecar.wire.frames import SIZE, request_frame
from sidecar.wire.generated import metadata as md

TOPIC, RECORD_BYTES = "bench", 10_240
RECORDS, FETCH_MB_S = 4, 8
"""Columns of ConsumerPerformance."""


def fill(kafka: LocalKafka, mb: int) -> None:
    records = mb * 1_000_000 // RECORD_BYTES
    # fmt: off
    code, out = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", str(records),
        "--record-size", str(RECORD_BYTES), "--throughput", "-1", "--bootstrap-server", kafka.internal,
        "--command-property", "batch.size=262144", "linger.ms=5", timeout_s=180)
    # fmt: on
    if code != 0:
        raise RuntimeError(out)


def consume(kafka: LocalKafka, bootstrap: str, mb: int, n: int) -> float:
    """Return MB (2^20 bytes) per second, by ConsumerPerformance's own account of the time it spent fetching. It ends
    with 0 also if it got too few records in time."""
    records = mb * 1_000_000 // RECORD_BYTES
    # fmt: off
    code, out = kafka.run_tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", TOPIC, "--num-records", str(records),
        "--bootstrap-server", bootstrap, "--group", f"perf-{n}", "--hide-header", "--timeout", "60000", timeout_s=120)
    # fmt: on
    line = next((ln for ln in out.splitlines() if ln.count(",") >= 9), None)
    if code != 0 or line is None or int(line.split(",")[RECORDS]) < records:
        raise RuntimeError(f"not all of {records} records were consumed: {out}")
    return float(line.split(",")[FETCH_MB_S])


class Pinger:
    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)]).encode(9)
        self.frame = request_frame(3, 9, 1, "ping", True, body)

    def once(self) -> float:
        """Return the microseconds from the request to the whole response."""
        start = time.perf_counter_ns()
        self.sock.sendall(self.frame)
        buf = b""
        while len(buf) < 4 or len(buf) < 4 + SIZE.unpack_from(buf)[0]:
            if not (data := self.sock.recv(65_536)):
                raise ConnectionError(f"the connection was closed after {len(buf)} bytes of an answer")
            buf += data
        return (time.perf_counter_ns() - start) / 1000


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--mb", type=int, default=1500)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--pings", type=int, default=4000)
    a = ap.parse_args()
    speeds: dict[str, list[float]] = {"direct": [], "through": []}
    with one_broker("nobody") as kafka:
        node = kafka.nodes[0]
        create_topic(kafka, TOPIC, 4)
        fill(kafka, a.mb)
        ways = {"direct": kafka.internal, "through": kafka.bootstrap}
        consume(kafka, kafka.internal, a.mb, 0)  # page cache and the broker's JVM are warm for both
        used = 0.0
        for n in range(a.rounds):
            for way, bootstrap in ways.items():
                before = cpu_s(node.sidecar)
                speeds[way].append(consume(kafka, bootstrap, a.mb, 2 * n + (way == "through") + 1))
                used += cpu_s(node.sidecar) - before if way == "through" else 0.0
                print(f"round {n + 1}  {way:8} {speeds[way][-1]:9,.1f} MB/s", flush=True)
        direct, through = Pinger(node.internal_port), Pinger(node.sidecar_port)
        for _ in range(500):
            direct.once()
            through.once()
        pairs = [(direct.once(), through.once()) for _ in range(a.pings)]
    d, t = [p[0] for p in pairs], [p[1] for p in pairs]
    speed = {w: median(v) for w, v in speeds.items()}
    finish(
        {
            "bench": "passthrough",
            "peer": f"the same broker without the sidecar, Kafka {KAFKA} ConsumerPerformance",
            "direct_mb_s": round(speed["direct"], 1),
            "through_mb_s": round(speed["through"], 1),
            "ratio_mb_s": round(speed["through"] / speed["direct"], 3),
            "sidecar_cpu_s_per_gb": round(used / (a.rounds * a.mb / 1000), 3),
            "direct_p50_us": round(percentile(d, 0.5)),
            "added_p50_us": round(percentile(t, 0.5) - percentile(d, 0.5)),
            "added_p99_us": round(percentile(t, 0.99) - percentile(d, 0.99)),
        }
    )


if __name__ == "__main__":
    main()
