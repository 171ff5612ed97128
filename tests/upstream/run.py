"""Runs Kafka's own tests, out of its test jars, with a sidecar in front of each broker:

    python -m tests.upstream.run [--direct] [CLASS ...]

These classes start clusters in their JVM. A class of ours stands before Kafka's on the classpath: brokers listen at
another loopback address, and their sidecars on localhost, at the same ports. With `--direct` brokers listen there.
A broker has one listener for everything, so what brokers send to each other passes through the sidecars, too.
"""

from __future__ import annotations

import argparse
import re
import socketserver
import sys
import tempfile
import threading
import urllib.request
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from sidecar.core.vocabulary.internal_topics import OFFSETS, TRANSACTIONS
from sidecar.drill.artifacts import BEFORE
from sidecar.drill.local import LOG4J, compiled
from sidecar.drill.processes import DrillError, Process, free_ports, wait_until
from tests.matrix.build import Java

SOURCES = Path(__file__).resolve().parent / "java"
KAFKA_OF_TESTS = BEFORE
"""Maven has no test jars of 4.4.0."""
PACKAGE = "org/apache/kafka/common/test"
CONSOLE = Java(
    main="org.junit.platform.console.ConsoleLauncher",
    sources=(f"{PACKAGE}/PreboundSocketFactoryManager.java", f"{PACKAGE}/Sidecars.java"),
    artifact="kafka_2.13",
    version=KAFKA_OF_TESTS,
    resources=("META-INF/services/org.junit.jupiter.api.extension.Extension",),
    folder=SOURCES,
    jvm=("-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
)
REQUESTS = (
    "ConsumerGroupDescribeRequestTest",
    "ConsumerGroupHeartbeatRequestTest",
    "ConsumerProtocolMigrationTest",
    "DeleteGroupsRequestTest",
    "DescribeGroupsRequestTest",
    "HeartbeatRequestTest",
    "JoinGroupRequestTest",
    "LeaveGroupRequestTest",
    "ListGroupsRequestTest",
    "OffsetCommitRequestTest",
    "OffsetDeleteRequestTest",
    "OffsetFetchRequestTest",
    "ShareGroupDescribeRequestTest",
    "ShareGroupHeartbeatRequestTest",
    "StreamsGroupDescribeRequestTest",
    "StreamsGroupHeartbeatRequestTest",
    "SyncGroupRequestTest",
    "TxnOffsetCommitRequestTest",
)
"""Request tests that need nothing but a group coordinator."""
CLIENTS = (
    "PlaintextConsumerCallbackTest",
    "PlaintextConsumerCloseTest",
    "PlaintextConsumerCommitTest",
    "PlaintextConsumerPollTest",
    "PlaintextConsumerSubscriptionTest",
    "ShareConsumerTest",
)
STREAMS = (
    "HandlingSourceTopicDeletionIntegrationTest",
    "IQv2EndpointToPartitionsIntegrationTest",
    "InternalTopicIntegrationTest",
    "JoinWithIncompleteMetadataIntegrationTest",
    "KStreamRepartitionIntegrationTest",
    "RebalanceProtocolMigrationIntegrationTest",
    "RestoreIntegrationTest",
    "SmokeTestDriverIntegrationTest",
    "StandbyTaskCreationIntegrationTest",
    "StreamsUncaughtExceptionHandlerIntegrationTest",
)
PACKAGES = {
    "kafka.server": REQUESTS,
    "org.apache.kafka.clients.consumer": CLIENTS,
    "org.apache.kafka.streams.integration": STREAMS,
}
CLASSES = {name: package for package, names in PACKAGES.items() for name in names}
"""Name -> package."""
PARAMETERS = re.compile(r"\(.*\)|\[1\]$")
"""The suffix that JUnit adds to the name of a method. A second and later run with other parameters keeps its number."""
NESTED = "$WithAssignmentBatchingDisabledTest"
"""Some classes have one in them that runs the same tests with an assignment interval of 0."""
OPTIONS = [
    "execute",
    "--disable-banner",
    "--disable-ansi-colors",
    "--details=testfeed",
    "--config=junit.jupiter.extensions.autodetection.enabled=true",
]
BATCHING = (
    "ConsumerGroupHeartbeatRequestTest",
    "ConsumerProtocolMigrationTest",
    "ShareGroupHeartbeatRequestTest",
    "StreamsGroupHeartbeatRequestTest",
)
LOCALHOST, BROKERS_HOST = "127.0.0.1", "127.0.0.2"
READY_S, CLASS_S = 30, 3600
TOPICS = {OFFSETS: "offsets.topic.num.partitions", TRANSACTIONS: "transaction.state.log.num.partitions"}
SETTINGS = {
    "SIDECAR_GROUPS__INCLUDE": '[".*"]',
    "SIDECAR_GROUPS__KINDS": '["classic", "consumer", "share", "streams"]',
    "SIDECAR_LOG__FORMAT": "text",
    # The tests make topics and set settings at the broker, and count on them at once.
    "SIDECAR_METADATA_REFRESH_MS": "100",
    "SIDECAR_SETTINGS_REFRESH_MS": "100",
}
REBALANCES, VIOLATIONS = "sidecar_rebalances_total", "sidecar_invariant_violations_total"


@dataclass
class Result:
    failures: dict[str, str]
    """Test -> the first line of what JUnit says."""
    passed: list[str]
    figures: Counter[str]
    """Metrics of all sidecars, added up."""


class Sidecars:
    """A sidecar in front of each broker of the JVM's present cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.figures: Counter[str] = Counter()
        self._running: list[tuple[Process, int]] = []
        self._started = 0

    def start(self, node_id: str, port: str) -> None:
        (admin_port,) = free_ports(1)
        self._started += 1
        name = f"sidecar-{self._started}"
        env = {
            "SIDECAR_LISTEN": f"{LOCALHOST}:{port}",
            "SIDECAR_BROKER": f"{BROKERS_HOST}:{port}",
            "SIDECAR_NODE_ID": node_id,
            "SIDECAR_ADMIN": f"{LOCALHOST}:{admin_port}",
            **SETTINGS,
            **compiled(),
        }
        process = Process(name, [sys.executable, "-m", "sidecar.cli.main", "run"], self.folder / f"{name}.log", env)
        self._running.append((process.start(), admin_port))
        self._bootstrap = f"{LOCALHOST}:{port}"

    def wait_ready(self) -> None:
        if len(self._running) == 1:
            _make_topics(self._bootstrap)
        processes = [process for process, _ in self._running]
        wait_until("the sidecars to be ready", self._ready, READY_S, processes)

    def _ready(self) -> bool:
        return all(_get(admin_port, "/readyz") is not None for _, admin_port in self._running)

    def stop(self) -> None:
        while self._running:
            process, admin_port = self._running.pop()
            for line in (_get(admin_port, "/metrics") or "").splitlines():
                series, _, value = line.rpartition(" ")
                self.figures[series.partition("{")[0]] += int(float(value)) if series[:1] != "#" else 0
            process.kill()  # its broker is gone: there is nobody to hand over to


def _make_topics(bootstrap: str) -> None:
    """Some tests leave replication factors at 3, so their only broker cannot make the topics that a sidecar needs."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    metadata = admin.list_topics(timeout=30)
    (broker,) = metadata.brokers
    (settings,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker))]).values()
    config = {"min.insync.replicas": "1", "cleanup.policy": "compact"}
    topics = [
        NewTopic(name, int(settings.result(timeout=30)[setting].value), 1, config=config)
        for name, setting in TOPICS.items()
        if name not in metadata.topics
    ]
    for future in admin.create_topics(topics).values() if topics else ():
        try:
            future.result(timeout=30)
        except KafkaException as exc:
            if exc.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the sidecar may make them, too
                raise


def _get(admin_port: int, path: str) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin_port}{path}", timeout=5) as reply:
            return str(reply.read().decode())
    except (URLError, OSError):
        return None


@contextmanager
def _answering(sidecars: Sidecars | None) -> Iterator[int]:
    """Answers the questions of Sidecars.java on the port that it yields."""
    answers: dict[str, Callable[..., None]] = defaultdict(lambda: lambda *_: None)
    if sidecars is not None:
        answers.update(start=sidecars.start, ready=sidecars.wait_ready, stop=sidecars.stop)

    class Questions(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            word, *broker = self.rfile.readline().decode().split()
            answer = "done"
            try:
                answers[word](*broker)
            except (DrillError, KafkaException) as exc:
                answer = f"failed: {exc}".replace("\n", " ")
            self.wfile.write(f"{answer}\n".encode())

    with socketserver.TCPServer((LOCALHOST, 0), Questions) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
            if sidecars is not None:
                sidecars.stop()


def run(name: str, folder: Path, direct: bool = False) -> Result:
    """Runs one class of CLASSES. Logs and JUnit's report are below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.xml").write_text(LOG4J)
    sidecars = None if direct else Sidecars(folder)
    java, *options = CONSOLE.build().command
    classes = [f"{CLASSES[name]}.{c}" for c in (name, *([f"{name}{NESTED}"] if name in BATCHING else []))]
    with _answering(sidecars) as port:
        properties = [f"-Drunner.port={port}", f"-Dbrokers.host={LOCALHOST if direct else BROKERS_HOST}"]
        properties += [f"-Dlog4j2.configurationFile={folder}/log4j2.xml"]
        command = [java, *properties, *options, *OPTIONS]
        command += [f"--select-class={c}" for c in classes] + [f"--reports-dir={folder}"]
        jvm = Process(name, command, folder / "jvm.log", cwd=folder).start()
        wait_until("the tests to end", lambda: not jvm.alive, CLASS_S)
    return _read(folder / "TEST-junit-jupiter.xml", sidecars.figures if sidecars else Counter())


def _read(report: Path, figures: Counter[str]) -> Result:
    result = Result({}, [], figures)
    for case in ET.parse(report).getroot().iter("testcase"):
        nested = "" if NESTED not in case.attrib["classname"] else "batching off: "
        test = nested + PARAMETERS.sub("", case.attrib["name"])
        failure = next((f for f in case if f.tag in ("failure", "error", "skipped")), None)
        if failure is None:
            result.passed.append(test)
        else:
            result.failures[test] = (failure.attrib.get("message") or failure.text or failure.tag).strip()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--direct", action="store_true", help="without sidecars")
    parser.add_argument("--folder", type=Path, help="where logs go")
    parser.add_argument("classes", nargs="*", default=CLASSES, metavar="CLASS", help="of CLASSES; all by default")
    args = parser.parse_args()
    base = args.folder or Path(tempfile.mkdtemp(prefix="upstream-"))
    failed = 0
    for name in args.classes:
        result = run(name, base.absolute() / name, args.direct)
        counts = f"{len(result.passed)} passed, {len(result.failures)} failed, {result.figures[REBALANCES]} rebalances"
        print(f"{name}: {counts}", flush=True)
        for test, why in result.failures.items():
            print(f"    {test}: {why}", flush=True)
        failed += len(result.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
