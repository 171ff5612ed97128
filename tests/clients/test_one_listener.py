"""Unmodified clients and tools through a sidecar that stands before a broker's only listener."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.clients import java_consumer, python_consumer
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.frames import request_frame, response_body
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from tests.clients.ground import make_topic, produce
from tests.clients.wire import join_request, talk

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def until(check: Callable[[], bool], timeout_s: float = 120, what: str = "") -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, what or "not in time"
        time.sleep(0.05)


def groups_tool(kafka: LocalKafka, *args: str) -> str:
    code, out = kafka.run_tool(GROUPS, "--bootstrap-server", kafka.bootstrap, *args)
    assert code == 0, out
    return out


def consume(kafka: LocalKafka, group: str, topic: str, n: int, **config: object) -> Consumer:
    """A consumer that has read and committed `n` records; the caller closes it."""
    base = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    c = Consumer({**base, "log_level": 3, **config})
    c.subscribe([topic])
    seen, end = 0, time.monotonic() + 40
    while seen < n:
        assert time.monotonic() < end, f"{seen} of {n} records"
        m = c.poll(0.2)
        if m is not None:
            assert m.error() is None, m.error()
            seen += 1
    c.commit(asynchronous=False)
    return c


def test_java_and_librdkafka_share_a_managed_group(kafka: LocalKafka, topic: str) -> None:
    produce(kafka, topic, 300)
    clients = [
        java_consumer(kafka, "j1", topic, "managed-shared"),
        python_consumer(kafka, "p1", topic, "managed-shared"),
    ]
    try:
        for c in clients:
            c.start()
        until(lambda: [len(c.journal.current()) for c in clients] == [3, 3], what="three partitions each")
        until(lambda: sum(c.journal.count for c in clients) >= 300)
        until(lambda: sum(sum(c.journal.committed.values()) for c in clients) >= 300)
        state = groups_tool(kafka, "--describe", "--group", "managed-shared", "--state")
        assert "uniform" in state and "Stable" in state
        members = groups_tool(kafka, "--describe", "--group", "managed-shared", "--members", "--verbose")
        assert members.count("managed-shared") == 2 and "j1" in members and "p1" in members
        offsets = groups_tool(kafka, "--describe", "--group", "managed-shared")
        assert offsets.count(topic) == 6
    finally:
        for c in clients:
            c.stop()


def test_a_group_that_is_not_included_is_the_brokers_own_and_each_is_listed_once(kafka: LocalKafka, topic: str) -> None:
    produce(kafka, topic, 60)
    theirs = consume(kafka, "plain-classic", topic, 60)
    also = consume(kafka, "plain-consumer", topic, 60, **{"group.protocol": "consumer"})
    ours = consume(kafka, "managed-listed", topic, 60, **{"group.protocol": "consumer"})
    try:
        out = groups_tool(kafka, "--list", "--state", "--type")
        rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if len(line.split()) == 3}
        assert rows["plain-classic"] == ["Classic", "Stable"]
        assert rows["plain-consumer"][0] == rows["managed-listed"][0] == "Consumer"
        assert sum(line.startswith("managed-listed ") for line in out.splitlines()) == 1
        only = groups_tool(kafka, "--list", "--type", "classic")
        assert "plain-classic" in only and "managed-listed" not in only
        epochs = talk(kafka, lambda c: describe(c, "plain-consumer"), direct=True)
        assert epochs[0] == Code.NONE, "the broker itself coordinates it"
        assert talk(kafka, lambda c: describe(c, "managed-listed"), direct=True)[0] == Code.GROUP_ID_NOT_FOUND
    finally:
        for c in (theirs, also, ours):
            c.close()


async def describe(conn: BrokerConnection, group: str) -> tuple[int, str, int]:
    res = await conn.request(cd, "ConsumerGroupDescribe", cd.ConsumerGroupDescribeRequest(group_ids=[group]))
    g = res.groups[0]
    return g.error_code, g.group_state, g.group_epoch


def test_exactly_once_offsets_in_a_transaction(kafka: LocalKafka, topic: str) -> None:
    produce(kafka, topic, 30)
    c = consume(kafka, "managed-txn", topic, 30, **{"group.protocol": "consumer"})
    p = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "txn-test", "log_level": 3})
    p.init_transactions(30)
    p.begin_transaction()
    p.produce(topic, "k", "v")
    p.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], c.consumer_group_metadata(), 30)
    p.commit_transaction(30)
    c.close()
    again = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "managed-txn", "log_level": 3})
    (found,) = again.committed([TopicPartition(topic, 0)], timeout=20)
    again.close()
    assert found.offset == 3


def test_commits_are_fenced_by_member_and_epoch(kafka: LocalKafka, topic: str) -> None:
    async def run(conn: BrokerConnection) -> list[int]:
        joined = await conn.request(ch, "ConsumerGroupHeartbeat", join_request("managed-fence", "m1", [topic]))
        epoch = joined.member_epoch
        codes = []
        for member, at in (("m1", epoch), ("m1", epoch + 5), ("nobody", epoch), ("", -1)):
            req = oc.OffsetCommitRequest("managed-fence", at, member, topics=[
                oc.OffsetCommitRequestTopic(topic, partitions=[oc.OffsetCommitRequestPartition(0, 7)])])  # fmt: skip
            raw = await conn.raw(8, 9, req.encode(9), flexible=True)
            res = oc.OffsetCommitResponse.decode(9, raw, response_body(raw, True))
            codes.append(res.topics[0].partitions[0].error_code)
        groups = [
            of.OffsetFetchRequestGroup("managed-fence", "m1", epoch + 5),
            of.OffsetFetchRequestGroup("managed-fence", "m1", epoch),
        ]
        for group in groups:
            raw = await conn.raw(9, 9, of.OffsetFetchRequest(groups=[group]).encode(9), flexible=True)
            codes.append(of.OffsetFetchResponse.decode(9, raw, response_body(raw, True)).groups[0].error_code)
        return codes

    assert talk(kafka, run) == [
        0,
        Code.STALE_MEMBER_EPOCH,
        Code.UNKNOWN_MEMBER_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.STALE_MEMBER_EPOCH,
        0,
    ]


def test_a_member_of_the_classic_protocol_is_given_an_id_first(kafka: LocalKafka) -> None:
    async def run(conn: BrokerConnection) -> int:
        protocols = [jg.JoinGroupRequestProtocol("range", b"")]
        req = jg.JoinGroupRequest("managed-classic", 10_000, 10_000, protocol_type="consumer", protocols=protocols)
        return int((await conn.request(jg, "JoinGroup", req)).error_code)

    assert talk(kafka, run) == Code.MEMBER_ID_REQUIRED


def test_errors_are_the_brokers(kafka: LocalKafka, topic: str) -> None:
    """The same bad requests to the sidecar and to Kafka's own coordinator: the same codes and texts, but for a member
    of a group that is not there (docs/reference/differences.md)."""

    async def run(conn: BrokerConnection, group: str) -> list[tuple[int, str | None]]:
        bad = [
            ch.ConsumerGroupHeartbeatRequest(group, "m", 5),
            ch.ConsumerGroupHeartbeatRequest("", "m", 0),
            ch.ConsumerGroupHeartbeatRequest(group, "m", -3),
            ch.ConsumerGroupHeartbeatRequest(group, "m", -2),
            ch.ConsumerGroupHeartbeatRequest(group, "m", 0, topic_partitions=[]),
            ch.ConsumerGroupHeartbeatRequest(group, "m", 0, rebalance_timeout_ms=1),
            ch.ConsumerGroupHeartbeatRequest(group, "m", 0, rebalance_timeout_ms=1, topic_partitions=[]),
            join_request(group, "m", [topic]),
            ch.ConsumerGroupHeartbeatRequest(group, "m", 99),
            ch.ConsumerGroupHeartbeatRequest(group, "x", 2),
            ch.ConsumerGroupHeartbeatRequest(group, "m", 2, instance_id="i"),
            ch.ConsumerGroupHeartbeatRequest(group, "m", -1),
            ch.ConsumerGroupHeartbeatRequest(group, "m", -1),
        ]
        bad[4].subscribed_topic_names = [topic]
        odd = join_request(group, "m2", [topic])
        odd.server_assignor = "magic"
        found = []
        for req in [*bad, odd]:
            res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
            found.append((res.error_code, (res.error_message or "").replace(group, "G") or None))
        return found

    ours = talk(kafka, lambda c: run(c, "managed-errors"))
    theirs = talk(kafka, lambda c: run(c, "unmanaged-errors"), direct=True)
    nowhere, unknown = (69, "Consumer group G not found."), (25, "Member m is not a member of group G.")
    assert nowhere in theirs
    assert ours == [unknown if told == nowhere else told for told in theirs]


def test_a_group_is_deleted_when_its_members_are_gone(kafka: LocalKafka, topic: str) -> None:
    produce(kafka, topic, 12)
    c = consume(kafka, "managed-delete", topic, 12, **{"group.protocol": "consumer"})
    code, out = kafka.run_tool(GROUPS, "--bootstrap-server", kafka.bootstrap, "--delete", "--group", "managed-delete")
    assert "not empty" in out.lower() or "GroupNotEmpty" in out, out
    c.close()
    until(lambda: talk(kafka, lambda conn: describe(conn, "managed-delete"))[1] == "Empty")
    groups_tool(kafka, "--delete", "--group", "managed-delete")
    assert "managed-delete" not in groups_tool(kafka, "--list")
    del code


def test_the_answer_to_a_joining_member_waits_for_its_first_assignment(kafka: LocalKafka, topic: str) -> None:
    """consumer.join_wait_ms: offloaded, and yet nobody has to come again."""

    async def join(conn: BrokerConnection, group: str, member: str) -> tuple[int, int | None]:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, member, [topic]))
        assert res.error_code == Code.NONE, res
        parts = res.assignment.topic_partitions if res.assignment is not None else None
        return res.member_epoch, None if parts is None else sum(len(t.partitions) for t in parts)

    # A new group each time, until the sidecar has heard of the topic.
    for i in range(100):
        group = f"managed-joins-{i}"
        first = talk(kafka, lambda c, g=group: join(c, g, "first"))  # type: ignore[misc]
        if first[1]:
            break
        time.sleep(0.1)
    assert first == (2, 6)
    # Within the assignment interval there is nothing under way to wait for.
    assert talk(kafka, lambda c: join(c, group, "second"))[1] == 0


def test_a_topic_made_later_reaches_the_group(kafka: LocalKafka) -> None:
    async def run(conn: BrokerConnection) -> int:
        epoch, owned = 0, 0
        for n in range(60):
            req = join_request("managed-later", "m", ["made-later"])
            if epoch:
                req = ch.ConsumerGroupHeartbeatRequest("managed-later", "m", epoch, topic_partitions=[])
            res = await conn.request(ch, "ConsumerGroupHeartbeat", req)
            assert res.error_code == 0
            epoch = res.member_epoch
            if res.assignment is not None:
                owned = sum(len(t.partitions) for t in res.assignment.topic_partitions)
            if owned:
                return owned
            if n == 1:
                threading.Thread(target=make_topic, args=(kafka, "made-later", 4)).start()
            import asyncio

            await asyncio.sleep(0.2)
        return owned

    assert talk(kafka, run) == 4


# ---- bad input ---------------------------------------------------------------------------------------------
BAD = {
    "garbage": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4,
    "tls hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 300,
    "negative size": b"\xff\xff\xff\xff" + b"x" * 40,
    "zero size": b"\0\0\0\0" + b"x" * 40,
    "lying body": request_frame(68, 1, 1, "c", True, b"\xff\xff\xff\xff\x0f" * 3),
    "empty body": request_frame(68, 1, 1, "c", True, b""),
    "version out of range": request_frame(68, 77, 1, "c", True, b"x"),
    "unknown api": request_frame(999, 0, 1, "c", False, b"x"),
    "client id past the end": request_frame(68, 1, 1, "c", True, b"")[:12] + b"\x7f\xff",
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_frames_close_their_connection_and_no_other(kafka: LocalKafka, topic: str, name: str) -> None:
    port = kafka.nodes[0].sidecar_port
    raw = BAD[name]
    if name == "client id past the end":
        raw = (len(raw) - 4).to_bytes(4, "big") + raw[4:]

    async def beside(conn: BrokerConnection) -> int:
        before = await conn.request(md, "Metadata", md.MetadataRequest(topics=[]))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
            s.sendall(raw)
            s.settimeout(10)
            assert s.recv(100) == b"", "closed, without an answer"
        after = await conn.request(md, "Metadata", md.MetadataRequest(topics=[]))
        return int(before.cluster_id == after.cluster_id)

    assert talk(kafka, beside) == 1


def test_thousands_of_heartbeats_at_once_on_one_connection(kafka: LocalKafka, topic: str) -> None:
    """Symptom: a RecursionError. Each answer let the next request be seen one call deeper."""

    async def run(conn: BrokerConnection) -> int:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request("managed-many", "m", [topic]))
        return int(res.member_epoch)

    epoch = talk(kafka, run)
    frame = request_frame(68, 1, 5, "c", True, ch.ConsumerGroupHeartbeatRequest("managed-many", "m", epoch).encode(1))
    with socket.create_connection(("127.0.0.1", kafka.nodes[0].sidecar_port), timeout=20) as s:
        threading.Thread(target=s.sendall, args=(frame * 5000,), daemon=True).start()
        answers = s.makefile("rb")
        for _ in range(5000):
            size = int.from_bytes(answers.read(4), "big")
            body = answers.read(size)
            assert body[9:11] == b"\0\0", "no error"


def test_half_close_still_gets_the_answers(kafka: LocalKafka) -> None:
    with socket.create_connection(("127.0.0.1", kafka.nodes[0].sidecar_port), timeout=10) as s:
        body = md.MetadataRequest(topics=[]).encode(9)
        s.sendall(request_frame(3, 9, 1, "c", True, body))
        heartbeat = join_request("managed-half", "m", ["orders"]).encode(1)
        s.sendall(request_frame(68, 1, 2, "c", True, heartbeat))
        got = b""
        s.shutdown(socket.SHUT_WR)
        while chunk := s.recv(65_536):
            got += chunk
        sizes = []
        while got:
            n = int.from_bytes(got[:4], "big")
            sizes.append(int.from_bytes(got[4:8], "big"))
            got = got[4 + n :]
        assert sizes in ([1, 2], [1]), "a broker may close before the second; never out of order"


def test_a_client_that_does_not_read_costs_no_memory(kafka: LocalKafka) -> None:
    """Back-pressure both ways: requests are read no further, responses are not hoarded, and none is lost."""
    import psutil

    node = kafka.nodes[0]
    assert node.sidecar is not None
    process = psutil.Process(node.sidecar.worker_pid)
    names = [md.MetadataRequestTopic(name=f"no-such-topic-{i}" + "x" * 90) for i in range(10)]
    body = md.MetadataRequest(topics=names, allow_auto_topic_creation=False).encode(9)
    n = 25_000  # 27 MB: more than all socket buffers on the way
    with socket.create_connection(("127.0.0.1", node.sidecar_port), timeout=30) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)

        def send() -> None:
            for i in range(n):
                s.sendall(request_frame(3, 9, i, "slow", True, body))

        before = process.memory_info().rss
        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        time.sleep(3)
        assert sender.is_alive(), "the sidecar took all requests of a client that reads nothing"
        grown_mib = (process.memory_info().rss - before) / 1e6
        assert grown_mib < 40, f"{grown_mib:.0f} MB for one client that does not read"
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        got = s.makefile("rb", buffering=1 << 20)
        for i in range(n):
            size = int.from_bytes(got.read(4), "big")
            assert int.from_bytes(got.read(size)[:4], "big") == i
        sender.join(10)


def test_metrics_and_health(kafka: LocalKafka) -> None:
    import urllib.request

    node = kafka.nodes[0]
    with socket.create_connection(("127.0.0.1", node.sidecar_port), timeout=10) as s:
        s.sendall(BAD["negative size"])
        assert s.recv(100) == b""
    assert kafka.get(node, "/livez") == {"live": True}
    assert kafka.get(node, "/readyz")["ready"] is True
    text = urllib.request.urlopen(f"http://127.0.0.1:{node.admin_port}/metrics").read().decode()
    values = {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    }
    closed = sum(v for k, v in values.items() if k.startswith("sidecar_connections_closed_total"))
    assert values["sidecar_connections_active"] == values["sidecar_connections_opened_total"] - closed
    assert values["sidecar_invariant_violations_total"] == 0
    assert any(k.startswith("sidecar_frames_refused_total{") for k in values)


def test_the_state_topic_is_compacted_and_describes_itself(kafka: LocalKafka) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 3})
    topics = admin.list_topics(timeout=20).topics
    assert len(topics["__group_state"].partitions) == len(topics["__consumer_offsets"].partitions)
    resource = ConfigResource(ResourceType.TOPIC, "__group_state")
    config = admin.describe_configs([resource])[resource].result(timeout=20)
    assert config["cleanup.policy"].value == "compact"


def test_the_audit_on_spark_agrees(kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    from sidecar.audit.run.verdict import verdict
    from sidecar.drill.lake import audited, owned

    c = consume(kafka, "managed-audit", topic, 12, **{"group.protocol": "consumer", "client.id": "auditee"})
    c.close()
    lake = audited(kafka.bootstrap, tmp_path / "lake")
    mine, found = owned(lake, "managed-audit"), verdict(lake)
    assert {i["partition"] for i in mine} == set(range(6))
    assert {i["client_id"] for i in mine} == {"auditee"} and {i["to_why"] for i in mine} == {"left"}
    assert not found.findings and not found.possible and found.complete


def test_history_and_owner_answer_without_spark(kafka: LocalKafka, topic: str) -> None:
    import json

    from typer.testing import CliRunner

    from sidecar.cli.main import app

    def ask(*words: str) -> tuple[int, list[dict[str, str]]]:
        done = CliRunner().invoke(app, [*words, "--bootstrap", kafka.bootstrap, "-o", "json"])
        return done.exit_code, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    produce(kafka, topic, 60)
    c = consume(kafka, "managed-history", topic, 12, **{"group.protocol": "consumer", "client.id": "historian"})
    code, owners = ask("owner", f"{topic}-3", "--group", "managed-history")
    assert code == 0 and [o["client"] for o in owners] == ["historian"] and owners[0]["coordinator"] == "sidecar 1"
    assert owners[0] in ask("owner", f"{topic}-3")[1], "every group is looked through"
    code, owners = ask("owner", "managed-history")
    assert {o["partition"] for o in owners} == {f"{topic}-{p}" for p in range(6)}
    c.close()
    code, events = ask("history", "managed-history")
    assert code == 0 and [e["what"] for e in events[-3:]] == ["left", "group epoch", "target assignment"]
    assert {"coordinator", "joined", "group epoch", "target assignment", "owns"} <= {e["what"] for e in events}
    assert ask("owner", f"{topic}-3", "--group", "managed-history") == (1, []), "it has left"
    assert ask("owner", f"{topic}-3", "--group", "managed-history", "--at", "1h") == (1, []), "it was not there yet"
    assert ask("history", "nobody-knows") == (1, [])
    assert ask("history", "managed-history", "--since", "yesterday")[0] == 2


def test_a_restarted_sidecar_knows_its_groups(kafka: LocalKafka, topic: str) -> None:
    c = consume(kafka, "managed-restart", topic, 12, **{"group.protocol": "consumer"})
    before = talk(kafka, lambda conn: describe(conn, "managed-restart"))
    node = kafka.nodes[0]
    assert node.sidecar is not None
    node.sidecar.kill()
    kafka.start_sidecar(node)
    kafka.wait_ready()
    after = talk(kafka, lambda conn: describe(conn, "managed-restart"))
    assert before == after and after[1] == "Stable"
    until(lambda: _commits(c), what="the same consumer goes on by itself")
    c.close()


def _commits(c: Consumer) -> bool:
    c.poll(0.1)
    try:
        c.commit(asynchronous=False)
    except KafkaException as exc:
        return bool(exc.args[0].code() == -168)  # nothing new to commit: the coordinator was asked and answered
    return True
