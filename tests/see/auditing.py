"""A real `sidecar audit stream` that reads a copy of the state topic, of which records can be deleted."""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.processes import Process, free_ports, wait_until
from sidecar.state.codec import Encoded
from tests.see.ground import AUDIT, PARTITIONS, STATE, Ground

COPY = "state-copy"
WEEK_MS = 7 * 24 * 3_600_000


class Audit:
    """An audit that is started at once, and scraped by Prometheus when it has read everything: Spark starts slowly."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self.ground = ground
        self.lake, self.away = folder / "lake", folder / "away"
        self.port = free_ports(1)[0]
        self.copied = self._copy()
        command = [sys.executable, "-m", "sidecar.cli.main", "audit", "stream", "--every", "1"]
        command += ["--from", f"kafka://{ground.kafka.internal}/{COPY}", "--lake", str(self.lake)]
        self.process = Process("audit", [*command, "--metrics", str(self.port)], folder / "audit.log").start()

    def _copy(self) -> dict[int, int]:
        """By partition, how many records there are."""
        settings = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "min.compaction.lag.ms": str(WEEK_MS)}
        admin = AdminClient({"bootstrap.servers": self.ground.kafka.internal, "log_level": 3})
        admin.create_topics([NewTopic(COPY, PARTITIONS, 3, config=settings)])[COPY].result(30)
        found = entries(self.ground)
        self.ground.write(found, COPY)
        return {p: len(records) for p, records in found.items()}

    def watched(self) -> None:
        """Prometheus has its figures from now on."""
        log, all_of_it = self.process.log, sum(self.copied.values())
        wait_until("the first batch", lambda: "gold is up to date" in log.read_text(), 120, [self.process], 0.5)
        self.ground.prometheus.scrape(AUDIT, [f"127.0.0.1:{self.port}"])

        def read() -> bool:
            return self.ground.prometheus.values("sum(group_state_audit_records)") == [all_of_it]

        wait_until("the audit to have everything", read, 60, [self.process], 0.5)


def entries(ground: Ground) -> dict[int, list[Encoded]]:
    """Returns the state topic's records."""
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
