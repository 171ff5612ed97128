"""Faults of a real `sidecar audit stream`, and the alerts that they raise. It reads a copy of the state topic, of which
records can be deleted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.processes import Process, free_ports, wait_until
from sidecar.state.codec import Encoded
from tests.audit.lake.topics import Topics
from tests.see.ground import AUDIT, PARTITIONS, STATE, Ground, foreign
from tests.see.prometheus import LEFT_OUT

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.skipif(LEFT_OUT, reason="SEE_WITHOUT_PROMETHEUS=1"),
]
COPY = "state-copy"
WEEK_MS = 7 * 24 * 3_600_000


class Audit:
    def __init__(self, ground: Ground, folder: Path) -> None:
        self.ground = ground
        self.lake, self.away = folder / "lake", folder / "away"
        self.port, self.copied = free_ports(1)[0], 0
        command = [sys.executable, "-m", "sidecar.cli.main", "audit", "stream", "--every", "1"]
        command += ["--from", f"kafka://{ground.kafka.internal}/{COPY}", "--lake", str(self.lake)]
        self.process = Process("audit", [*command, "--metrics", str(self.port)], folder / "audit.log")

    def start(self) -> None:
        self.process.start()
        wait_until("the first batch", lambda: "gold is up to date" in self.process.log.read_text(), 90, [self.process])

    def until_read(self, records: int) -> None:
        def read() -> bool:
            return self.ground.prometheus.values("sum(group_state_audit_records)") >= [records]

        wait_until("the audit to have everything", read, 60, [self.process], 0.5)


def entries(ground: Ground) -> dict[int, list[Encoded]]:
    """What the state topic has now."""
    consumer = Consumer({"bootstrap.servers": ground.kafka.internal, "group.id": "nobody", "log_level": 2})
    found: dict[int, list[Encoded]] = {}
    try:
        for p in consumer.list_topics(STATE, 10).topics[STATE].partitions:
            place = TopicPartition(STATE, p, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.assign([place])
            while end and len(found.setdefault(p, [])) < end:
                m = consumer.poll(2)
                if m is None:  # the rest are markers of transactions
                    break
                found[p].append(Encoded(m.key() or b"", m.value(), tuple(m.headers() or ())))  # type: ignore[arg-type]
    finally:
        consumer.close()
    return found


@pytest.fixture(scope="module")
def audit(ground: Ground, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audit]:
    made = Audit(ground, tmp_path_factory.mktemp("audit"))
    settings = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "min.compaction.lag.ms": str(WEEK_MS)}
    copied = entries(ground)
    admin = AdminClient({"bootstrap.servers": ground.kafka.internal, "log_level": 3})
    admin.create_topics([NewTopic(COPY, PARTITIONS, 3, config=settings)])[COPY].result(30)
    ground.write(copied, COPY)
    made.copied = len(copied[0])
    try:
        made.start()
        ground.prometheus.scrape(AUDIT, [f"127.0.0.1:{made.port}"])
        made.until_read(sum(map(len, copied.values())))
        yield made
    finally:
        ground.prometheus.scrape(AUDIT)
        made.process.stop(30)


def test_the_audit_is_too_slow_for_the_compaction(ground: Ground, audit: Audit) -> None:
    with ground.fault("soon compacted", "AuditFallsBehind") as fault:
        ground.alter(COPY, "min.compaction.lag.ms", "100")
        fault.until_firing()
        ground.alter(COPY, "min.compaction.lag.ms", str(WEEK_MS))


def test_records_go_before_they_are_read(ground: Ground, audit: Audit) -> None:
    """While the lake cannot be written: somebody has put a file in its place. The audit tries again and again."""
    with ground.fault("no lake", "AuditFails") as fault:
        audit.lake.rename(audit.away)
        audit.lake.touch()
        fault.until_firing()
        more = [Encoded(b"no key", b"no value")] * 5
        ground.write({0: more}, COPY)
        Topics(ground.kafka.internal).forget(COPY, 0, audit.copied + len(more))
        audit.lake.unlink()
        lost = ground.lasting_fault("lost", "AuditLostRecords")
        audit.away.rename(audit.lake)
        lost.until_firing()


def test_a_record_is_of_somebody_who_is_not_the_owner(ground: Ground, audit: Audit) -> None:
    found = ground.lasting_fault("finding", "AuditFindings")
    ground.write(foreign("managed-copied"), COPY)
    found.until_firing()


def test_the_audit_dies(ground: Ground, audit: Audit) -> None:
    """What it has told of goes with it."""
    with ground.fault("no audit", "AuditFails") as fault:
        audit.process.kill()
        fault.until_firing()
        for lasting in (f for f in ground.faults if f.name in ("lost", "finding")):
            ground.over(lasting)
        ground.prometheus.scrape(AUDIT)
