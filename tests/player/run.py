"""Plays generated requests to a broker and to its sidecar, and prints each difference.

python -m tests.player.run [--kafka 4.3.1] [--seed N] [--cases N]     # a sample; 0: everything
python -m tests.player.run --values two --only JoinGroup              # which fault is answered?
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.artifacts import KAFKA
from sidecar.drill.local import LocalKafka
from tests.player.cases import pairs, sample, singles
from tests.player.compare import Listeners, both, differing_answers, play
from tests.player.schema import Messages
from tests.player.states import PARTITIONS, TOPICS

ENV = {
    "SIDECAR_GROUPS__INCLUDE": '["managed-.*"]',
    "SIDECAR_LOG__LEVEL": "warning",
    # Kafka assigns in the heartbeat itself: offload is KIP-1263's.
    "SIDECAR_CONSUMER__ASSIGNOR_OFFLOAD_ENABLE": "false",
    "SIDECAR_CONSUMER__REFUSE_COMMITS_OF_OTHERS": "false",
    "SIDECAR_METADATA_REFRESH_MS": "300",
}
PROPERTIES = {"group.consumer.assignment.interval.ms": "0"}
SHOWN = 400
MADE = {"one": (singles,), "two": (pairs,), "both": (singles, pairs)}


def listeners(kafka: LocalKafka) -> Listeners:
    node = kafka.nodes[0]
    port = node.clients_port if kafka.front == "one" else node.internal_port
    ports = frozenset({node.clients_port, node.internal_port, node.sidecar_port})
    return Listeners(Messages(kafka.libs), node.sidecar_port, port, ports)


def make_topics(kafka: LocalKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    there = admin.list_topics(timeout=30).topics
    wanted = [NewTopic(name, PARTITIONS, 1) for name in TOPICS if name not in there]
    for future in admin.create_topics(wanted).values() if wanted else ():
        future.result(timeout=30)


@contextmanager
def cluster(folder: Path, version: str) -> Iterator[LocalKafka]:
    properties = {} if version.startswith("3.") else PROPERTIES
    with LocalKafka(folder, brokers=1, version=version, sidecar_env=ENV, properties=properties) as kafka:
        kafka.wait_ready()
        make_topics(kafka)
        yield kafka


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--kafka", default=KAFKA)
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--cases", type=int, default=500)
    ap.add_argument("--values", choices=MADE, default="both", help="odd values in one request")
    ap.add_argument("--only", default="", help="part of a case's name")
    ap.add_argument("--seconds", type=float, default=math.inf, help="stop then")
    ap.add_argument("--tell", action="store_true", help="print all answers")
    ap.add_argument("--newest", action="store_true", help="only the newest version of each API")
    a = ap.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sidecar-player-", ignore_cleanup_errors=True) as tmp,
        cluster(Path(tmp) / "run", a.kafka) as kafka,
    ):
        at = listeners(kafka)
        versions = both(at)
        cases = [case for make in MADE[a.values] for case in make(at.messages, versions)]
        cases = [c for c in cases if a.only in str(c) and (not a.newest or c.version == versions[c.api][1])]
        chosen = sample(cases, a.seed, a.cases or len(cases))
        start = time.monotonic()
        found = play(at, chosen, f"{a.seed:x}", a.seconds)
        took = time.monotonic() - start
    for difference in found.differences[:SHOWN]:
        print(differing_answers(*difference, whole=a.tell))
    for why, count in found.agreed.most_common():
        print(f"{count:6} {why}")
    for what, ms in found.slow.most_common(20):
        print(f"{ms:6} ms {what}")
    print(f"{found.played:,} of {len(cases):,} cases in {took:.0f} s, {len(found.differences)} differences")
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
