"""Coordinators as one real broker cannot show them: moves, stale ones, sessions that begin anew, expiry."""

from __future__ import annotations

import pytest

from sidecar.wire.generated import add_offsets_to_txn as ao
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import txn_offset_commit as tc
from tests.whole.broker import rights as rt
from tests.whole.broker.clockwork import Client, Clockwork
from tests.whole.broker.codes import Err
from tests.whole.broker.ports import Delays
from tests.whole.broker.talk import TRANSACTION, beat, commit, coordinator, fetch, init, join, make_topic, sync

SESSION_MS = 9_000


def three(broker: dict[str, str] | None = None) -> Clockwork:
    world = Clockwork(3, delays=Delays(), broker=broker)
    make_topic(world)
    return world


def another(world: Clockwork, *nodes: int) -> int:
    return next(n for n in world.hosts if n not in nodes)


def test_members_and_offsets_outlive_their_coordinator() -> None:
    world = three()
    first = coordinator(world, "g")
    client = Client(world, first)
    joined = join(client, "g", session_ms=30_000)
    assert sync(client, "g", joined).assignment == b"yours"
    assert commit(client, "g", 5, (joined.generation_id, joined.member_id, None)) == 0
    elsewhere = Client(world, another(world, first))
    assert beat(elsewhere, "g", joined) == Err.NOT_COORDINATOR
    world.cluster.crash(first)
    world.run(2 * SESSION_MS)
    second = coordinator(world, "g")
    assert second != first
    client = Client(world, second)
    assert beat(client, "g", joined) == 0
    assert fetch(client, "g") == (0, 5)
    world.run(29_000)
    assert beat(client, "g", joined) == 0, "its session began anew with the new coordinator"
    world.run(31_000)
    assert beat(client, "g", joined) == Err.UNKNOWN_MEMBER_ID


def test_a_coordinator_that_loads_says_so() -> None:
    world = Clockwork(3, delays=Delays(load=(5_000, 5_000)))
    make_topic(world)
    client = Client(world, coordinator(world, "g"))
    assert join(client, "g").error_code == Err.COORDINATOR_LOAD_IN_PROGRESS
    assert fetch(client, "g")[0] == Err.COORDINATOR_LOAD_IN_PROGRESS
    world.run(6_000)
    assert join(client, "g").error_code == 0


def test_a_paused_coordinator_is_stale_until_it_learns() -> None:
    world = three()
    first = coordinator(world, "g")
    client = Client(world, first)
    joined = join(client, "g", session_ms=60_000)
    sync(client, "g", joined)
    assert commit(client, "g", 5, (joined.generation_id, joined.member_id, None)) == 0
    world.pause(first)
    world.run(2 * SESSION_MS)
    second = coordinator(world, "g")
    assert second != first
    there = Client(world, second)
    assert commit(there, "g", 7, (joined.generation_id, joined.member_id, None)) == 0
    world.isolate(first)  # so that it does not learn of the others at once
    world.resume(first)
    assert beat(client, "g", joined) == 0, "it believes that it coordinates"
    assert fetch(client, "g", stable=False) == (0, 5), "an older offset"
    assert commit(client, "g", 6, (joined.generation_id, joined.member_id, None)) == Err.COORDINATOR_NOT_AVAILABLE
    world.cut.clear()
    world.run(5_000)
    assert beat(client, "g", joined) == Err.NOT_COORDINATOR
    assert fetch(there, "g") == (0, 7)


def test_a_fetch_that_asks_for_stable_offsets_waits_for_what_is_under_way() -> None:
    world = three()
    first = coordinator(world, "g")
    assert commit(Client(world, first), "g", 5) == 0
    world.isolate(first)
    assert commit(Client(world, first), "g", 6) == Err.COORDINATOR_NOT_AVAILABLE, "after offsets.commit.timeout.ms"
    assert fetch(Client(world, first), "g", stable=False) == (0, 5)
    assert fetch(Client(world, first), "g") == (Err.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_request_that_is_held_back_holds_back_what_comes_behind_it() -> None:
    world = three({"group.initial.rebalance.delay.ms": "3000"})
    client = Client(world, coordinator(world, "g"))
    protocols = [jg.JoinGroupRequestProtocol("range", b"")]
    member = client.ask(jg, "JoinGroup", jg.JoinGroupRequest("g", 10_000, 60_000, "", None, "x", protocols)).member_id
    first = client.send(jg, "JoinGroup", jg.JoinGroupRequest("g", 10_000, 60_000, member, None, "x", protocols))
    second = client.send(hb, "Heartbeat", hb.HeartbeatRequest("g", 1, member))
    world.run(2_900)
    assert not client.answers
    world.run(200)
    assert client.answers[first].generation_id == 1
    assert client.answers[second].error_code == 0


def test_a_static_member_takes_the_placeholder_over_and_the_former_holder_is_fenced() -> None:
    world = three()
    client = Client(world, coordinator(world, "g"))
    former = join(client, "g", instance="placeholder")
    sync(client, "g", former, "placeholder")
    newer = join(client, "g", instance="placeholder")
    assert newer.generation_id == former.generation_id
    assert newer.skip_assignment
    assert beat(client, "g", former, "placeholder") == Err.FENCED_INSTANCE_ID
    assert commit(client, "g", 1, (former.generation_id, former.member_id, "placeholder")) == Err.FENCED_INSTANCE_ID
    assert commit(client, "g", 1, (newer.generation_id, newer.member_id, "placeholder")) == 0
    assert commit(client, "g", 1) == Err.UNKNOWN_MEMBER_ID


def test_offsets_of_an_empty_group_expire_with_the_group() -> None:
    world = three({"offsets.retention.minutes": "10"})
    client = Client(world, coordinator(world, "g"))
    assert commit(client, "g", 5) == 0
    joined = join(client, "kept", session_ms=1_000_000)
    sync(client, "kept", joined)
    for _ in range(8):
        world.run(120_000)
        client = Client(world, coordinator(world, "kept"))
        assert beat(client, "kept", joined) == 0
        commit(client, "kept", 5, (joined.generation_id, joined.member_id, None))
    world.run(400_000)
    assert fetch(Client(world, coordinator(world, "g")), "g") == (0, -1)
    assert fetch(Client(world, coordinator(world, "kept")), "kept") == (0, 5)


def test_there_is_no_transaction_coordinator_with_too_few_brokers() -> None:
    world = Clockwork(1, broker={"transaction.state.log.replication.factor": "3"})
    client = Client(world)
    for _ in range(5):
        (c,) = client.ask(fc, "FindCoordinator", fc.FindCoordinatorRequest("w", 1, ["w"])).coordinators
        assert c.error_code == Err.COORDINATOR_NOT_AVAILABLE
        world.run(1_000)
    assert "__transaction_state" not in world.cluster.controller.image.topics


def test_producer_ids_and_fences_outlive_the_transaction_coordinator() -> None:
    world = three()
    first = coordinator(world, "w", TRANSACTION)
    was = init(world, "w")
    world.cluster.crash(first)
    world.run(2 * SESSION_MS)
    assert init(world, "w") == (was[0], was[1] + 1)
    other = init(world, "other")
    assert other[0] not in (was[0],)


@pytest.mark.parametrize("move", ["nothing", "group", "transaction"])
def test_offsets_of_a_transaction_are_pending_until_it_ends(move: str) -> None:
    world = three()
    producer = init(world, "w")
    assert commit(Client(world, coordinator(world, "g")), "g", 1) == 0
    txn = Client(world, coordinator(world, "w", TRANSACTION))
    req = ao.AddOffsetsToTxnRequest("w", *producer, "g")
    assert txn.ask(ao, "AddOffsetsToTxn", req).error_code == 0
    parts = [tc.TxnOffsetCommitRequestTopic("t", partitions=[tc.TxnOffsetCommitRequestPartition(0, 9)])]
    group = Client(world, coordinator(world, "g"))
    sent = tc.TxnOffsetCommitRequest("w", "g", *producer, -1, "", None, parts)
    assert group.ask(tc, "TxnOffsetCommit", sent, 4).topics[0].partitions[0].error_code == 0
    if move != "nothing":
        key, kind = ("g", 0) if move == "group" else ("w", 1)
        world.cluster.crash(coordinator(world, key, kind))
        world.run(2 * SESSION_MS)
    group = Client(world, coordinator(world, "g"))
    assert fetch(group, "g") == (Err.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetch(group, "g", stable=False) == (0, 1)
    txn = Client(world, coordinator(world, "w", TRANSACTION))
    assert txn.ask(et, "EndTxn", et.EndTxnRequest("w", *producer, True), 4).error_code == 0
    world.run(3_000)
    assert fetch(group, "g") == (0, 9)


def test_rights() -> None:
    world = Clockwork(1, authorizer=True)
    make_topic(world, replicas=1)
    make_topic(world, "hidden", replicas=1)
    coordinator(world, "g")
    world.cluster.rights.deny("eve", rt.TOPIC, "hidden")
    world.cluster.rights.deny("eve", rt.GROUP, "g", rt.READ)
    eve = Client(world, client_id="eve")
    seen = eve.ask(md, "Metadata", md.MetadataRequest(None, False, False, True))
    assert {t.name for t in seen.topics} == {"t", "__consumer_offsets"}
    asked = eve.ask(md, "Metadata", md.MetadataRequest([md.MetadataRequestTopic(name="hidden")]))
    assert asked.topics[0].error_code == Err.TOPIC_AUTHORIZATION_FAILED
    assert join(eve, "g").error_code == Err.GROUP_AUTHORIZATION_FAILED
    assert commit(eve, "g", 1) == Err.GROUP_AUTHORIZATION_FAILED
    assert fetch(eve, "g") == (0, -1), "DESCRIBE is left"
    assert join(Client(world), "g").error_code == 0
