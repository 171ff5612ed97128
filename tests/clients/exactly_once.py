"""Exactly once: two applications read one topic and write another in transactions, and are killed again and again.

    make exactly-once N=20 [PROTOCOL=classic|consumer]

Each round kills one of the two with SIGKILL, or lets it sleep for longer than its session; every other round kills the
sidecar that owns the group, too. One application is Java, the other librdkafka. In the end every record that was
written to the input must be in the output once, as a reader of committed transactions sees it; an application that has
slept too long must not commit what others have done meanwhile.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.artifacts import java
from sidecar.drill.clients import ProducerProcess
from sidecar.drill.local import JVM, LocalKafka
from sidecar.drill.processes import DrillError, Process, interrupt_on_sigterm, wait_until
from tests.clients.wire import session_of

PARTITIONS, RATE = 4, 100
SESSION_S = 7
JAVA_SOURCE = Path(__file__).parent.parent / "java" / "Copier.java"
ENV = {"SIDECAR_GROUPS__INCLUDE": '["copy.*"]', "SIDECAR_LOG__LEVEL": "warning"}
SESSION_MS, HEARTBEAT_MS, LONG_MS = 6_000, 5_000, 45_000
PROPERTIES = {"group.consumer.min.session.timeout.ms": str(SESSION_MS)}


class App:
    """One of the two applications: it is started again under the same transactional id."""

    def __init__(self, kafka: LocalKafka, name: str, topic: str, protocol: str) -> None:
        self.kafka, self.name = kafka, name
        args = [kafka.bootstrap, f"copy-{topic}", topic, f"{topic}-out", f"{topic}-{name}", protocol]
        if name == "java":
            self.hold = kafka.folder / f"{topic}.hold"
            jvm = [*JVM, f"-Dhold={self.hold}", "-cp", f"{kafka.tools}/*"]
            self.command = [java(), *jvm, str(JAVA_SOURCE), *args]
        else:
            self.command = [sys.executable, "-m", "tests.clients.copier", *args]
        self.starts = 0
        self.process = self.start()

    def start(self) -> Process:
        self.starts += 1
        log = self.kafka.folder / f"{self.name}-{self.starts}.log"
        self.said: list[str] = []
        self.process = Process(self.name, self.command, log, lines=True).start()
        threading.Thread(target=self._read, args=(self.process, self.said), daemon=True).start()
        return self.process

    @staticmethod
    def _read(process: Process, said: list[str]) -> None:
        for line in process.stdout:
            said.append(line.strip())


class Output:
    """Returns the records that a reader of committed transactions gets."""

    def __init__(self, kafka: LocalKafka, topic: str) -> None:
        self.seen: Counter[bytes] = Counter()
        self.consumer = Consumer(
            {
                "bootstrap.servers": kafka.internal,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        self.consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def read(self) -> int:
        """The number of records so far; new ones come all the time, so it reads no longer than a second."""
        until = time.monotonic() + 1
        while time.monotonic() < until and (messages := self.consumer.consume(2_000, 0.3)):
            for m in messages:
                value = m.value()
                if m.error() is None and isinstance(value, bytes):
                    self.seen[value] += 1
        return self.seen.total()

    def advanced(self, than: int) -> bool:
        return self.read() > than


def run(kafka: LocalKafka, rounds: int, protocol: str, say: bool = True) -> dict[str, object]:
    topic = f"in-{protocol}"
    producer, apps, output = _begin(kafka, topic, protocol)
    fenced = kills = 0
    try:
        wait_until("the first output", lambda: output.advanced(0), 120)
        for n in range(rounds):
            app = apps[n % 2]
            sleeps = n % 3 == 2
            if sleeps:
                app.process.signal(signal.SIGSTOP)
            else:
                app.process.kill()
            if n % 2 == 1:
                _kill_owner(kafka, f"copy-{topic}")
                kills += 1
            if sleeps:
                time.sleep(SESSION_S)
                at = output.read()
                wait_until("the other one to go on", lambda at=at: output.advanced(at), 120)  # type: ignore[misc]
                app.process.signal(signal.SIGCONT)
                time.sleep(1)
                fenced += sum("aborted" in line or "fenced" in line for line in app.said)
                if not app.process.alive:
                    app.start()
            else:
                app.start()
            at = output.read()
            wait_until("the output to go on", lambda at=at: output.advanced(at), 120)  # type: ignore[misc]
            if say:
                did = "slept" if sleeps else "was killed"
                print(
                    f"round {n + 1:2}: {app.name} {did}{', the owner was killed' if n % 2 else ''}; {at} records out",
                    flush=True,
                )
        sent = _all_out(producer, output)
    finally:
        _end(producer, apps)
    return {
        "exactly_once": protocol,
        "kafka": kafka.version,
        "rounds": rounds,
        "owner_kills": kills,
        "records": sent,
        "missing": sent - len(output.seen),
        "twice": sum(n > 1 for n in output.seen.values()),
        "fenced_after_sleep": fenced,
    }


def _begin(kafka: LocalKafka, topic: str, protocol: str) -> tuple[ProducerProcess, list[App], Output]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    replicas = min(3, kafka.brokers)
    for f in admin.create_topics([NewTopic(t, PARTITIONS, replicas) for t in (topic, f"{topic}-out")]).values():
        f.result(timeout=30)
    if protocol == "consumer":
        session_of(kafka, f"copy-{topic}", SESSION_MS, HEARTBEAT_MS)
    producer = ProducerProcess(kafka, topic, RATE, kafka.internal).start()
    apps = [App(kafka, "java", topic, protocol), App(kafka, "python", topic, protocol)]
    return producer, apps, Output(kafka, f"{topic}-out")


def _all_out(producer: ProducerProcess, output: Output) -> int:
    """Ends the producer; returns how many records it has written, once so many are in the output."""
    producer.stop()
    sent = sum(producer.counts.values())
    wait_until("everything in the output", lambda: output.read() >= sent, 120)
    time.sleep(2)
    output.read()
    return sent


def _end(producer: ProducerProcess, apps: list[App]) -> None:
    for app in apps:
        app.process.kill()
    producer.process.kill()


def late_commit(kafka: LocalKafka) -> dict[str, int]:
    """A Java member is removed while it has a batch in hand, joins again in the background, and then commits the batch
    with the epoch that it has now, while the other member owns the partitions: that one is stopped meanwhile, in a
    longer session. Returns how many records are in the output twice, and how many commits were refused."""
    topic = "in-late"
    producer, apps, output = _begin(kafka, topic, "consumer")
    member, other = apps
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})

    def members() -> dict[str, int]:
        """Client id -> how many partitions it has. On a busy machine the other one may be removed as well."""
        found = admin.describe_consumer_groups([f"copy-{topic}"])[f"copy-{topic}"].result(30).members
        return {m.client_id: len(m.assignment.topic_partitions) for m in found}

    try:
        wait_until("the first output", lambda: output.advanced(0), 120)
        wait_until("two members", lambda: len(members()) == 2, 120)
        member.hold.touch()
        wait_until("a batch in hand", lambda: "holding" in member.said, 120)
        member.process.signal(signal.SIGSTOP)
        wait_until("its removal", lambda: f"{topic}-java" not in members(), 120)
        wait_until("the other one to have its partitions", lambda: PARTITIONS in members().values(), 120)
        session_of(kafka, f"copy-{topic}", LONG_MS, HEARTBEAT_MS)
        at = output.read()
        beaten = at + 2 * HEARTBEAT_MS // 1_000 * RATE  # it has had a heartbeat since
        wait_until("the other one to go on", lambda: output.advanced(beaten), 120)
        other.process.signal(signal.SIGSTOP)
        member.process.signal(signal.SIGCONT)
        wait_until("its return", lambda: f"{topic}-java" in members(), 120)
        time.sleep(1)
        member.hold.unlink()
        wait_until("its late commit", lambda: bool(_aborted(member) or _twice(output)), 120)
        other.process.signal(signal.SIGCONT)
        at = output.read()
        wait_until("the output to go on", lambda: output.advanced(at + RATE), 120)
        _all_out(producer, output)
    finally:
        _end(producer, apps)
    return {"twice": _twice(output), "refused": len(_aborted(member))}


def _aborted(app: App) -> list[str]:
    return [line for line in app.said if "aborted" in line]


def _twice(output: Output) -> int:
    output.read()
    return sum(n > 1 for n in output.seen.values())


def _kill_owner(kafka: LocalKafka, group: str) -> None:
    owner = kafka.owner_of(group)
    assert owner.sidecar is not None
    owner.sidecar.kill()
    wait_until("another owner", lambda: kafka.owner_of(group, skip=owner.node_id).node_id != owner.node_id, 120)
    kafka.start_sidecar(owner)
    kafka.wait_ready()
    # A librdkafka client that asks for its offsets while the owner moves back is stuck (its issue 5586).
    wait_until("the owner to be back", lambda: kafka.owner_of(group).node_id == owner.node_id, 120)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rounds", type=int, default=20)
    ap.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    a = ap.parse_args()
    interrupt_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="sidecar-eos-", ignore_cleanup_errors=True) as tmp:
        kafka = LocalKafka(Path(tmp) / "run", sidecar_env=ENV, properties=PROPERTIES)
        try:
            with kafka:
                kafka.wait_ready()
                figures = run(kafka, a.rounds, a.protocol)
        except DrillError as exc:
            print(f"failed: {exc}", file=sys.stderr)
            return 1
    print(json.dumps(figures))
    return 1 if figures["missing"] or figures["twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
