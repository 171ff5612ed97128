"""The placeholder that a managed share group with members has at its broker, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.coordinator.moves.empty_groups import EmptyGroupPorts, EmptyGroups
from sidecar.coordinator.placeholder import share_placeholders as module
from sidecar.coordinator.placeholder.share_membership import AT_ONCE_ALONE, SLOW_MS
from sidecar.core.runtime.events import Answer
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.share_group import placeholder_id
from sidecar.link.messages import OpenShareState, Request
from sidecar.wire.apis import Api
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import share_group_heartbeat as sh
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, FakeBrokers
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, RecordingFront, run, until
from tests.inprocess.faults import ALWAYS
from tests.inprocess.share import BrokerShareGroup, Member

ORDERS = "orders"
UNRECORDED = placeholder_id("g", 77)


def share(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]], **given: Any) -> None:
    run(test, front={"share": True}, **given)


async def beat(client: EmbeddedClient, epoch: int, topics: list[str] | None = None, member: str = "m1") -> Any:
    return await client.ask(sh.ShareGroupHeartbeatRequest("g", member, epoch, None, topics), 1)


async def joined(sidecar: EmbeddedSidecar, *topics: str, member: str = "m1") -> tuple[EmbeddedClient, Any]:
    client = await sidecar.client()
    reply = await beat(client, 0, list(topics or (ORDERS,)), member)
    assert reply.error_code == Code.NONE
    return client, reply


def parts(reply: Any) -> dict[bytes, list[int]] | None:
    if reply.assignment is None:
        return None
    return {t.topic_id: sorted(t.partitions) for t in reply.assignment.topic_partitions}


def at_broker(sidecar: EmbeddedSidecar) -> BrokerShareGroup:
    return sidecar.brokers.share.group("g")


def states(sidecar: EmbeddedSidecar) -> dict[str, float]:
    """Returns the states that placeholders are in, with their numbers."""
    counted = {str(s): sidecar.metrics.value("share_placeholders", s) for s in module.State}
    return {s: n for s, n in counted.items() if n}


def beats(sidecar: EmbeddedSidecar) -> int:
    return sidecar.brokers.count(Api.SHARE_GROUP_HEARTBEAT)


async def passes(sidecar: EmbeddedSidecar, seconds: float) -> None:
    """Time, under a lease."""
    end_s = now_s() + seconds
    while now_s() < end_s:
        sidecar.prove()
        await asyncio.sleep(min(5.0, end_s - now_s()))


def now_s() -> float:
    return asyncio.get_running_loop().time()


# ---- joining --------------------------------------------------------------------------------------------------------
def test_the_first_answer_has_partitions_though_their_state_is_new() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        began_s = now_s()
        _, reply = await joined(sidecar)
        assert parts(reply) == {sidecar.topic_id(ORDERS): [0, 1]}
        assert now_s() - began_s < 1
        assert states(sidecar) == {"held": 1} and len(at_broker(sidecar).members) == 1

    share(test)


def test_where_the_state_exists_the_first_heartbeat_of_the_placeholder_tells_it() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.share.groups["g"] = BrokerShareGroup(initialised={(ORDERS, 0), (ORDERS, 1)})
        began_s = now_s()
        _, reply = await joined(sidecar)
        assert parts(reply) == {sidecar.topic_id(ORDERS): [0, 1]}
        assert now_s() - began_s < 1
        assert sidecar.brokers.count(Api.DESCRIBE_SHARE_GROUP_OFFSETS) == 0

    share(test)


def test_its_member_id_is_none_that_a_broker_refuses() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        (member_id,) = at_broker(sidecar).members
        assert len(member_id) == 36

    share(test)


def test_when_all_is_initialised_three_heartbeats_go_in_a_session() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, reply = await joined(sidecar)
        await passes(sidecar, 30)
        assert (await beat(client, reply.member_epoch)).error_code == Code.NONE
        before = beats(sidecar)
        await passes(sidecar, 40)
        assert 2 <= beats(sidecar) - before <= 4

    share(test)


def test_it_shows_the_topics_of_all_members_at_once() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(payments=1)
        await joined(sidecar)
        await passes(sidecar, 5)
        second, reply = await joined(sidecar, ORDERS, "payments", member="m2")
        (placeholder,) = at_broker(sidecar).members.values()
        assert placeholder.names == (ORDERS, "payments")
        await passes(sidecar, 2)
        told = parts(await beat(second, reply.member_epoch, member="m2")) or parts(reply)
        assert sidecar.topic_id("payments") in (told or {})

    share(test)


def test_a_topic_that_appears_is_shown_and_assigned() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, reply = await joined(sidecar, ORDERS, "later")
        (placeholder,) = at_broker(sidecar).members.values()
        assert placeholder.names == (ORDERS,)
        await sidecar.topics(later=1)
        await until(lambda: placeholder.names == ("later", ORDERS))
        await passes(sidecar, 1.5)
        reply = await beat(client, reply.member_epoch)
        assert parts(reply) == {sidecar.topic_id(ORDERS): [0, 1], sidecar.topic_id("later"): [0]}

    share(test)


# ---- the share coordinator ------------------------------------------------------------------------------------------
def test_while_the_share_coordinator_is_away_what_is_known_goes_on() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(payments=1)
        client, reply = await joined(sidecar)
        sidecar.brokers.share.away = True
        asked = sidecar.brokers.count(Api.DESCRIBE_SHARE_GROUP_OFFSETS)
        began_s = now_s()
        second, other = await joined(sidecar, ORDERS, "payments", member="m2")
        assert now_s() - began_s < 2 and sidecar.topic_id("payments") not in (parts(other) or {})
        await passes(sidecar, 40)
        assert (await beat(client, reply.member_epoch)).error_code == Code.NONE
        assert (await beat(second, other.member_epoch, member="m2")).error_code == Code.NONE
        assert sidecar.brokers.count(Api.DESCRIBE_SHARE_GROUP_OFFSETS) - asked <= 1 + 41_000 // SLOW_MS
        assert beats(sidecar) >= 40, "heartbeats do not wait behind that"
        assert states(sidecar) == {"initialising": 1}
        warnings = sidecar.lines.events("warning")
        assert "share state is not told in time" in warnings and "share state is not initialised" in warnings
        sidecar.brokers.share.recover()
        await passes(sidecar, 3)
        reply = await beat(second, other.member_epoch, member="m2")
        assert sidecar.topic_id("payments") in (parts(reply) or {})
        assert states(sidecar) == {"held": 1}

    share(test)


def test_each_question_about_share_state_has_a_connection_of_its_own() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        lanes: list[Any] = []
        opened: list[int] = []
        cluster: Any = sidecar.cluster
        lane, open_ = cluster.lane, cluster.open

        async def seen(node_id: int, which: Any, number: int = 0) -> Any:
            conn = await lane(node_id, which, number)
            lanes.append(conn)
            return conn

        async def made(node_id: int) -> Any:
            conn: Any = await open_(node_id)
            opened.append(id(conn))
            asks = conn.request

            async def request(module_: Any, name: str, *args: Any, **kwargs: Any) -> Any:
                if name == "DescribeShareGroupOffsets":
                    assert conn not in lanes
                return await asks(module_, name, *args, **kwargs)

            conn.request = request
            return conn

        cluster.lane, cluster.open = seen, made
        await joined(sidecar)
        count = sidecar.brokers.count(Api.DESCRIBE_SHARE_GROUP_OFFSETS)
        assert count and len(opened) >= count

    share(test)


# ---- the broker -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "code",
    [
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_ID_NOT_FOUND,
        Code.UNSUPPORTED_VERSION,
    ],
)
def test_what_only_an_administrator_changes_is_tried_seldom_and_told(code: Code) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        refused = sidecar.brokers.faults.fail(Api.SHARE_GROUP_HEARTBEAT, code, ALWAYS)
        client, reply = await joined(sidecar)
        assert parts(reply) == {} and states(sidecar) == {"refused": 1}
        await passes(sidecar, 20)
        assert beats(sidecar) == 1
        told = sidecar.lines.fields("share placeholders cannot join or leave")
        assert code.name in told["problem"] and told["hint"]
        refused.end()
        await passes(sidecar, 20)
        assert states(sidecar) == {"held": 1}
        assert parts(await beat(client, reply.member_epoch)) == {sidecar.topic_id(ORDERS): [0, 1]}

    share(test)


def test_when_a_refusal_is_over_joins_wait_for_share_state_again() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        sidecar.brokers.faults.fail(Api.SHARE_GROUP_HEARTBEAT, Code.GROUP_AUTHORIZATION_FAILED)
        await passes(sidecar, 20)
        shard = sidecar.owner_of("g").shard
        assert shard is not None and shard._turn.soft_of("g").refused == Code.GROUP_AUTHORIZATION_FAILED
        await passes(sidecar, 35)
        assert shard._turn.soft_of("g").refused == Code.NONE and states(sidecar) == {"held": 1}

    share(test)


def test_a_broker_that_does_not_know_it_any_more_gets_it_again() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        at_broker(sidecar).members.clear()
        await passes(sidecar, 20)
        assert len(at_broker(sidecar).members) == 1 and len(set(at_broker(sidecar).joined)) == 1
        assert "share placeholder lost" in sidecar.lines.events("warning")
        assert sidecar.metrics.value("placeholders_lost") == 1

    share(test)


@pytest.mark.parametrize("shows", [False, True])
def test_a_broker_that_has_lost_the_group_gets_the_placeholder_again(shows: bool) -> None:
    """Symptom: a broker came back without its share group, and the placeholder never joined there again: new partitions
    were never initialised. Cause: GROUP_ID_NOT_FOUND counted as a group of another kind also in an answer to a
    heartbeat, which Kafka gives for a group that it does not know."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(payments=1)
        client, reply = await joined(sidecar)
        await passes(sidecar, 5)
        sidecar.brokers.share.groups.clear()
        if shows:
            await joined(sidecar, ORDERS, "payments", member="m2")
        await passes(sidecar, 20)
        assert states(sidecar) == {"held": 1} and len(at_broker(sidecar).members) == 1
        assert at_broker(sidecar).initialised >= {(ORDERS, 0), (ORDERS, 1)}
        assert sidecar.metrics.value("placeholders_lost") == 1
        assert "share placeholders cannot join or leave" not in sidecar.lines.events("warning")
        assert (await beat(client, reply.member_epoch)).error_code == Code.NONE

    share(test)


def test_when_the_keeper_dies_the_same_member_goes_on_at_the_next_one() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, reply = await joined(sidecar)
        (member_id,) = at_broker(sidecar).members
        sidecar.brokers.stop(2)
        await passes(sidecar, 20)
        assert (await beat(client, reply.member_epoch)).error_code == Code.NONE
        sidecar.brokers.topics[OFFSETS].leaders[:] = [1]
        sidecar.show()
        before = beats(sidecar)
        await passes(sidecar, 20)
        assert beats(sidecar) > before and list(at_broker(sidecar).members) == [member_id]
        assert states(sidecar) == {"held": 1}

    async def main() -> None:
        async with EmbeddedSidecar(FakeBrokers(nodes=(1, 2), partitions=1), front={"share": True}) as sidecar:
            await sidecar.topics(orders=2)
            sidecar.brokers.topics[OFFSETS].leaders[:] = [2]
            sidecar.show()
            await test(sidecar)

    clock.run(main())


@pytest.mark.parametrize("api", [Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_GROUP_DESCRIBE, Api.DESCRIBE_SHARE_GROUP_OFFSETS])
@pytest.mark.parametrize("done", [False, True])
def test_a_connection_that_is_lost_on_the_way(api: Api, done: bool) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.drop(api, done=done)
        client, reply = await joined(sidecar)
        await passes(sidecar, 3)
        assert states(sidecar) == {"held": 1} and len(at_broker(sidecar).members) == 1
        told = parts(reply) or parts(await beat(client, reply.member_epoch))
        assert told == {sidecar.topic_id(ORDERS): [0, 1]}

    share(test)


@pytest.mark.parametrize("lost", [False, True])
def test_a_member_comes_back_while_the_broker_has_yet_to_hear_that_it_went(lost: bool) -> None:
    """Symptom: a report about the former topics counted as all that is initialised, and so the group forgot the state
    of the others. If the answer about the former topics was lost, the broker kept these."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(payments=1)
        await joined(sidecar)
        second, _ = await joined(sidecar, ORDERS, "payments", member="m2")
        await passes(sidecar, 20)
        assert states(sidecar) == {"held": 1}
        sidecar.brokers.share.away = True
        faults, api = sidecar.brokers.faults, Api.SHARE_GROUP_HEARTBEAT
        former = lambda req: req.subscribed_topic_names == [ORDERS]  # noqa: E731
        fault = faults.drop(api, done=True, matches=former) if lost else faults.hang(api, matches=former)
        await beat(second, -1, member="m2")
        await until(lambda: fault.met == 1)
        second, reply = await joined(sidecar, ORDERS, "payments", member="m2")
        epochs = sidecar.lines.events().count("group epoch")
        fault.release()
        await passes(sidecar, 5)
        (placeholder,) = at_broker(sidecar).members.values()
        assert placeholder.names == (ORDERS, "payments") and states(sidecar) == {"held": 1}
        assert sidecar.lines.events().count("group epoch") == epochs, "it has forgotten nothing meanwhile"
        told = parts(await beat(second, reply.member_epoch, member="m2")) or parts(reply)
        assert sidecar.topic_id("payments") in (told or {})

    share(test)


# ---- takeover -------------------------------------------------------------------------------------------------------
def test_a_new_owner_joins_with_an_id_of_its_own_and_removes_the_former_one() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, reply = await joined(sidecar)
        (former,) = at_broker(sidecar).members
        sidecar.assign(-1)
        await until(lambda: not sidecar.service.serving())
        assert states(sidecar) == {} and list(at_broker(sidecar).members) == [former]
        await sidecar.own()
        await until(lambda: states(sidecar) == {"held": 1})
        (present,) = at_broker(sidecar).members
        assert present != former and at_broker(sidecar).joined == [former, present]
        assert (await beat(client, reply.member_epoch)).error_code == Code.NONE

    share(test)


@pytest.mark.parametrize("empty", [False, True])
def test_a_new_owner_finds_the_former_placeholder_that_no_record_names(empty: bool) -> None:
    """Symptom: an owner died before the first report of its placeholder. When the group went back, the broker gave a
    part of the partitions to that placeholder, and no member read them until its session was over. (Scene
    owners_die_in_moves_of_a_share_group, seeds 0 and 6.)"""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await until(lambda: states(sidecar) == {"held": 1})
        unheard = sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT, ALWAYS)
        if empty:
            await beat(client, -1)
        at_broker(sidecar).members[UNRECORDED] = Member((ORDERS,))
        sidecar.assign(-1)
        await until(lambda: not sidecar.service.serving())
        unheard.times = 0
        await sidecar.own()
        await until(lambda: states(sidecar) == ({} if empty else {"held": 1}))
        await until(lambda: UNRECORDED not in at_broker(sidecar).members)

    share(test)


def test_assignments_go_on_after_a_takeover_while_the_broker_does_not_answer() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, reply = await joined(sidecar)
        sidecar.assign(-1)
        await until(lambda: not sidecar.service.serving())
        sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT, ALWAYS)
        await sidecar.own()
        reply = await beat(client, reply.member_epoch)
        assert reply.error_code == Code.NONE
        await passes(sidecar, 5)
        _, second = await joined(sidecar, member="m2")
        assert parts(second), "what the record tells is initialised"

    share(test)


# ---- the end --------------------------------------------------------------------------------------------------------
def test_it_leaves_with_the_last_member() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        assert (await beat(client, -1)).error_code == Code.NONE
        await until(lambda: not at_broker(sidecar).members)
        assert states(sidecar) == {} and sidecar.coordinator.share_placeholders.given_up("g")
        before = beats(sidecar)
        await passes(sidecar, 60)
        assert beats(sidecar) == before

    share(test)


@pytest.mark.parametrize("from_the_start", [True, False])
@pytest.mark.parametrize("code", [Code.GROUP_AUTHORIZATION_FAILED, Code.UNSUPPORTED_VERSION])
def test_a_broker_that_takes_no_request_about_the_group_holds_it_up_no_longer(code: Code, from_the_start: bool) -> None:
    """Symptom: it never ended to leave, so the group could not be given back, deleted or altered until the sidecar had
    the missing right."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.share.refuses = code if from_the_start else Code.NONE
        client, _ = await joined(sidecar)
        await passes(sidecar, 3)
        sidecar.brokers.share.refuses = code
        await beat(client, -1)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(7, OpenShareState("g")))
        assert await front.reply(7) == Answer()
        assert states(sidecar) == {} and sidecar.coordinator.share_placeholders.given_up("g")
        reply = await client.ask(al.AlterShareGroupOffsetsRequest("g"), 0)
        assert reply.error_code == (Code.NONE if from_the_start else Code.NON_EMPTY_GROUP), "the broker decides"
        stays = "share placeholders stay at the brokers until their sessions end" in sidecar.lines.events("warning")
        assert stays is not from_the_start
        before = beats(sidecar)
        await passes(sidecar, 60)
        assert beats(sidecar) == before

    share(test)


def test_it_has_not_left_before_those_of_former_owners_are_looked_for() -> None:
    """Symptom: the lease was over for a moment when the placeholder left. That of a former owner stayed at the broker,
    and yet the group could be given back: the broker gave it partitions until its session was over."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await until(lambda: states(sidecar) == {"held": 1})
        beating = sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT)
        await until(lambda: beating.met)
        at_broker(sidecar).members[UNRECORDED] = Member((ORDERS,))
        await beat(client, -1)
        sidecar.service.lease.lost()
        beating.release()
        await until(lambda: sidecar.coordinator.share_placeholders.given_up("g"))
        assert not at_broker(sidecar).members

    share(test)


def test_a_member_that_comes_back_meanwhile_keeps_it() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        gone = sidecar.brokers.faults.delay(Api.SHARE_GROUP_HEARTBEAT, 0.3, matches=lambda req: req.member_epoch == -1)
        await beat(client, -1)
        assert gone.met == 0 or gone.times == 0
        _, reply = await joined(sidecar)
        await passes(sidecar, 3)
        assert len(at_broker(sidecar).members) == 1 and states(sidecar) == {"held": 1}
        assert parts(reply) or parts(await beat(client, reply.member_epoch))

    share(test)


def test_whoever_administers_waits_until_it_has_left() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        front = RecordingFront(sidecar.coordinator)
        late = sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT, matches=lambda req: req.member_epoch == -1)
        await beat(client, -1)
        front.send(Request(7, OpenShareState("g")))
        await passes(sidecar, 1)
        assert at_broker(sidecar).members
        late.release()
        assert await front.reply(7) == Answer()
        assert not at_broker(sidecar).members

    share(test)


def test_but_not_for_ever() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        front = RecordingFront(sidecar.coordinator)
        began_s = now_s()
        front.send(Request(7, OpenShareState("g")))
        assert (await front.reply(7)).code == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert 4.9 <= now_s() - began_s < 6

    share(test)


def test_nor_beyond_the_ownership() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(7, OpenShareState("g")))
        sidecar.assign(-1)
        assert (await front.reply(7)).code == Code.NOT_COORDINATOR
        front.send(Request(8, OpenShareState("g")))
        assert (await front.reply(8)).code == Code.NOT_COORDINATOR

    share(test)


def test_the_sidecar_can_make_and_delete_no_share_state() -> None:
    """The broker's coordinator does that, as it sees fit; what others send wipes out progress."""
    from pathlib import Path

    import sidecar.wire.generated as generated

    codecs = {p.stem for p in Path(str(generated.__file__)).parent.glob("*.py")}
    assert not {name for name in codecs if name.endswith("share_group_state")}
    assert not {api for api in Api if api in (83, 84, 85, 86, 87)}


def test_the_last_sidecar_takes_it_along() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.coordinator.stop()
        assert at_broker(sidecar).members
        await sidecar.coordinator.give_up_placeholders()
        assert not at_broker(sidecar).members

    share(test)


def test_but_a_broker_that_does_not_answer_does_not_hold_it_up() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.coordinator.stop()
        sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT, ALWAYS)
        await sidecar.coordinator.give_up_placeholders()
        assert "share placeholders stay at the brokers until their sessions end" in sidecar.lines.events("warning")

    share(test)


# ---- groups that are forgotten --------------------------------------------------------------------------------------
def test_an_empty_group_is_kept_while_the_broker_keeps_its_own() -> None:
    """Symptom: it has no offsets, and was taken for one whose offsets have expired."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await beat(client, -1)
        await until(lambda: sidecar.coordinator.no_placeholder("g"))
        made = sidecar.coordinator
        ports = EmptyGroupPorts(lambda: 0.0, made.leader_of, made.no_placeholder, made.moves.core.ask)
        empty_groups = EmptyGroups(made.service, sidecar.cluster, ports, sidecar.metrics, sidecar.lines)
        await empty_groups.look()
        assert sidecar.owner_of("g").has("g")
        del sidecar.brokers.share.groups["g"]
        await empty_groups.look()
        assert not sidecar.owner_of("g").has("g") and sidecar.metrics.value("groups_forgotten") == 1

    share(test)


# ---- a group that is emptied and filled again ------------------------------------------------------------------------
@pytest.mark.parametrize("leave", ["lost", "unsent"])
def test_a_group_that_is_filled_before_the_placeholder_has_left_hears_anew_what_is_initialised(leave: str) -> None:
    """Symptom: what the placeholder had told was forgotten with the last member, and never told again: the members of
    the group got no partitions from then on."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        if leave == "lost":
            sidecar.brokers.faults.drop(Api.SHARE_GROUP_HEARTBEAT, matches=lambda req: req.member_epoch == -1)
        else:  # a heartbeat of the placeholder is under way all the time
            hung = sidecar.brokers.faults.hang(Api.SHARE_GROUP_HEARTBEAT, matches=lambda req: req.member_id != "m1")
            await passes(sidecar, 16)
        await beat(client, -1)
        _, reply = await joined(sidecar)
        if leave == "unsent":
            hung.release()
        await passes(sidecar, 10)
        assert states(sidecar) == {"held": 1}
        told = parts(reply) or parts(await beat(client, reply.member_epoch))
        assert told == {sidecar.topic_id(ORDERS): [0, 1]}

    share(test)


# ---- many groups, and other settings ---------------------------------------------------------------------------------
def test_few_connections_ask_for_share_state_whatever_groups_there_are() -> None:
    """Symptom: a thousand share groups that began at once opened a thousand connections to one broker."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.share.init_s = 2.0
        cluster: Any = sidecar.cluster
        open_, there, most = cluster.open, 0, 0

        async def opened(node_id: int) -> Any:
            conn: Any = await open_(node_id)
            asks = conn.request

            async def request(module_: Any, name: str, *args: Any, **kwargs: Any) -> Any:
                nonlocal there, most
                alone = name == "DescribeShareGroupOffsets"
                there += alone
                most = max(most, there)
                try:
                    return await asks(module_, name, *args, **kwargs)
                finally:
                    there -= alone

            conn.request = request
            return conn

        cluster.open = opened
        sidecar.brokers.faults.delay(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 0.01, ALWAYS)
        for n in range(60):
            client = await sidecar.client()
            client.post(sh.ShareGroupHeartbeatRequest(f"g{n}", "m1", 0, None, [ORDERS]), 1)
        await passes(sidecar, 10)
        assert states(sidecar) == {"held": 60} and 1 <= most <= AT_ONCE_ALONE

    share(test)


def test_where_the_broker_wants_heartbeats_more_often_it_gets_them() -> None:
    """Symptom: with group.share.min.session.timeout.ms below its default, and a shorter session, the broker removed the
    placeholder between two of its heartbeats, and let administrators alter state that was in use."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.share.interval_ms = 2_000
        await joined(sidecar)
        await passes(sidecar, 5)
        before = beats(sidecar)
        await passes(sidecar, 36)
        assert beats(sidecar) - before >= 36 / 6

    share(test)


def test_a_topic_that_it_may_not_see_does_not_end_the_placeholder_that_is_there() -> None:
    """Symptom: its heartbeats were all refused from then on, its session ended, and administrators could alter state
    that was in use."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(payments=1)
        client, reply = await joined(sidecar)
        unseen = "payments"
        fault = sidecar.brokers.faults.fail(
            Api.SHARE_GROUP_HEARTBEAT,
            Code.TOPIC_AUTHORIZATION_FAILED,
            ALWAYS,
            lambda req: unseen in (req.subscribed_topic_names or ()),
        )
        second, other = await joined(sidecar, ORDERS, unseen, member="m2")
        for _ in range(3):
            before = beats(sidecar) - fault.met
            await passes(sidecar, 40)
            assert beats(sidecar) - fault.met > before, "a heartbeat that is not refused, within its session"
            reply = await beat(client, reply.member_epoch)
            other = await beat(second, other.member_epoch, member="m2")
            assert (reply.error_code, other.error_code) == (Code.NONE, Code.NONE)
        assert states(sidecar) == {"refused": 1}

    share(test)


def test_a_broker_that_is_lost_does_not_keep_the_placeholders_at_the_others() -> None:
    """Symptom: the first leave that failed ended the wait for all, and the sidecar ended before they had left."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for group_id in ("g", "h"):
            await client.ask(sh.ShareGroupHeartbeatRequest(group_id, "m1", 0, None, [ORDERS]), 1)
        await passes(sidecar, 2)
        await sidecar.coordinator.stop()
        sidecar.brokers.faults.fail(
            Api.SHARE_GROUP_HEARTBEAT, Code.NOT_COORDINATOR, matches=lambda req: req.group_id == "h"
        )
        sidecar.brokers.faults.delay(Api.SHARE_GROUP_HEARTBEAT, 0.5, matches=lambda req: req.group_id == "g")
        await sidecar.coordinator.give_up_placeholders()
        assert not at_broker(sidecar).members

    share(test)
