"""Several fronts at one coordinator: each gets its own answers, all of them hear what concerns everybody."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.core.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup
from sidecar.core.runtime.events import GroupsWithRecords, ListGroups
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.link.loopback import Loopback
from sidecar.link.messages import AccessAnswer, GroupRules, Lease, Reply, Request, Touch, View, Void
from sidecar.process.tasks import Broken
from sidecar.wire.apis import Api
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, run, turns, until
from tests.inprocess.messages import assigned, beat, join


def hello(name: str, group_id: str = "g") -> ConsumerHeartbeat:
    """The first heartbeat of a member, as a front makes it an event."""
    return ConsumerHeartbeat(group_id, name, 0, rebalance_timeout_ms=60_000, topic_names=("orders",), owned={})


def test_a_front_gets_lease_and_view_at_once_and_what_is_new_from_then_on() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        lease, rules, view = front.messages
        assert rules == GroupRules(partitions=1)
        assert lease == Lease(*sidecar.service.lease.until) and view == sidecar.coordinator.view
        sidecar.prove(70_000)
        sidecar.assign(2)
        assert [type(m) for m in front.messages[3:]] == [Lease, View]
        assert front.of(View)[-1].owners == (2,)

    run(test)


def test_a_view_that_is_the_same_is_shown_once() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        for _ in range(3):
            sidecar.show()
        assert len(front.of(View)) == 1

    run(test)


def test_each_front_gets_the_replies_to_its_own_tokens() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        one, two = RecordingFront(sidecar.coordinator), RecordingFront(sidecar.coordinator)
        one.send(Request(1, hello("m1", "g1")))
        two.send(Request(1, hello("m2", "g2")))
        two.send(Request(2, hello("m3", "g2")))
        assert (await one.reply(1)).member_id == "m1"
        assert (await two.reply(1)).member_id == "m2"
        assert (await two.reply(2)).member_id == "m3"
        assert [r.token for r in one.of(Reply)] == [1]

    run(test)


def test_two_real_fronts_serve_members_of_one_group() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        link = Loopback(asyncio.get_running_loop().call_soon)
        second = sidecar.another_front(link, lambda group_id: True)
        link.serve(sidecar.coordinator)
        one, two = await sidecar.client(), await sidecar.client(second)
        a, b = await one.ask(join("g", "m1"), 1), await two.ask(join("g", "m2"), 1)
        assert (a.error_code, b.error_code, b.member_id) == (0, 0, "m2")
        described = RecordingFront(sidecar.coordinator)
        described.send(Request(1, DescribeConsumerGroup("g")))
        assert [m.member_id for m in (await described.reply(1)).members] == ["m1", "m2"]

    run(test)


def test_a_change_of_the_group_voids_the_grants_of_every_front() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        link = Loopback(asyncio.get_running_loop().call_soon)
        second = sidecar.another_front(link, lambda group_id: True)
        link.serve(sidecar.coordinator)
        one, two, listener = await sidecar.client(), await sidecar.client(second), RecordingFront(sidecar.coordinator)
        reply = await one.ask(join("g", "m1"), 1)
        await one.ask(beat("g", "m1", reply.member_epoch, assigned(reply)), 1)
        await one.ask(beat("g", "m1", reply.member_epoch), 1)
        (steady, *_) = one.session.steady.values()
        assert steady.group.valid
        await two.ask(join("g", "m2"), 1)
        assert not steady.group.valid
        assert listener.of(Void)[0] == Void(("g",))
        answered = [type(m) for m in listener.messages]
        assert answered.index(Void) > 1, "behind the lease and the view that it was greeted with"

    run(test)


def test_a_setting_of_a_group_voids_only_its_grants_and_settings_of_brokers_all_once() -> None:
    """Symptom: each setting in the state topic ended all grants, and its slice took 0.4 s with 10,000 groups."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, listener = await sidecar.client(), RecordingFront(sidecar.coordinator)
        for group_id in ("g", "h"):
            reply = await client.ask(join(group_id, "m1"), 1)
            await client.ask(beat(group_id, "m1", reply.member_epoch, assigned(reply)), 1)
            await client.ask(beat(group_id, "m1", reply.member_epoch), 1)
        listener.messages.clear()
        sidecar.coordinator.setting_stored("g", "consumer.heartbeat.interval.ms")
        assert listener.of(Void) == [Void(("g",))]
        changes: list[object] = []
        sidecar.service.config_changed = lambda *args: changes.append(args)  # type: ignore[method-assign]
        for _ in range(200):
            sidecar.coordinator.setting_stored("", "/group.consumer.heartbeat.interval.ms")
        await turns()
        assert len(changes) == 1

    run(test)


def test_stored_orders_that_are_read_together_are_one_message() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        listener, orders = RecordingFront(sidecar.coordinator), {f"g{i}": "true" for i in range(200)}
        listener.messages.clear()
        sidecar.rules.settings.verdict = orders.get  # type: ignore[method-assign, assignment]
        for group_id in orders:
            sidecar.coordinator.setting_stored(group_id, cf.MANAGED)
        await turns()
        assert [m.moved for m in listener.of(GroupRules)] == [dict.fromkeys(orders, True)]

    run(test)


def test_the_grant_comes_with_the_answer_and_ends_with_the_next_change() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, hello("m1")))
        joined = await front.reply(1)
        front.send(Request(2, ConsumerHeartbeat("g", "m1", joined.member_epoch)))
        await front.reply(2)
        assert front.of(Reply)[-1].grant is None, "it may have to be told its partitions again"
        front.send(Request(3, ConsumerHeartbeat("g", "m1", joined.member_epoch, owned=joined.assignment)))
        await front.reply(3)
        grant = front.of(Reply)[-1].grant
        assert grant is not None and (grant.group_id, grant.member_id) == ("g", "m1")
        front.send(Request(4, hello("m2")))
        await front.reply(4)
        kinds = [type(m) for m in front.messages]
        assert kinds.index(Void) < len(kinds) - 1, "the grant is void before the next answer is given"

    run(test)


def test_a_touch_keeps_the_session_alive() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, hello("m1")))
        await front.reply(1)
        timers = sidecar.service.owners[0].shard
        assert timers is not None
        before = timers.timers.deadline(("session", "g", "m1"))
        await asyncio.sleep(0.005)
        front.send(Touch("g", "m1"))
        after = timers.timers.deadline(("session", "g", "m1"))
        assert before is not None and after is not None and after >= before + 100

    run(test)


def test_what_concerns_all_partitions_is_answered_from_all() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        names = [f"g{i}" for i in range(8)]
        for i, name in enumerate(names):
            front.send(Request(i + 1, hello("m", name)))
        await front.reply(8)
        await until(lambda: len(front.of(Reply)) == 8)
        front.send(Request(20, ListGroups()))
        assert sorted(g.group_id for g in (await front.reply(20)).groups) == names
        front.send(Request(21, GroupsWithRecords(candidates=("g1", "nobody"))))
        assert (await front.reply(21)).groups == {"g1"}

    run(test, partitions=4)


# ---- a front goes ---------------------------------------------------------------------------------------------------
def test_nothing_is_said_to_a_front_that_has_gone() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        gone, stays = RecordingFront(sidecar.coordinator), RecordingFront(sidecar.coordinator)
        hung = sidecar.brokers.faults.hang(Api.PRODUCE)
        gone.send(Request(1, hello("m1")))
        stays.send(Request(1, hello("m2")))
        gone.leave()
        before = len(gone.messages)
        hung.release()
        await stays.reply(1)
        sidecar.assign(2)
        assert len(gone.messages) == before

    run(test)


def test_the_answers_of_a_front_that_has_gone_are_not_its_successors() -> None:
    """Symptom: a front that was started again got the replies to the tokens of the one that had crashed, which are
    the same numbers. Cause: it got its place among the fronts, too."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        gone = RecordingFront(sidecar.coordinator)
        hung = sidecar.brokers.faults.hang(Api.PRODUCE)
        gone.send(Request(1, hello("m1")))
        gone.leave()
        again = RecordingFront(sidecar.coordinator)
        again.send(Request(1, hello("m2")))
        hung.release()
        assert (await again.reply(1)).member_id == "m2"
        await turns()
        assert len(again.of(Reply)) == 1

    run(test, consumer={"join_wait_ms": 0})


def test_many_fronts_may_come_one_after_the_other() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        stays = RecordingFront(sidecar.coordinator)
        for _ in range(200):
            RecordingFront(sidecar.coordinator).leave()
        stays.send(Request(1, hello("m1")))
        assert (await stays.reply(1)).code == Code.NONE

    run(test)


def test_an_answer_about_access_that_nobody_waits_for_is_dropped() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        front.send(AccessAnswer(7, frozenset({"orders"})))
        front.send(Request(1, hello("m1")))
        assert (await front.reply(1)).code == Code.NONE

    run(test)


def test_a_bug_while_a_message_is_handled_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)

        def breaks(token: int, event: object) -> None:
            raise KeyError("a bug")

        monkeypatch.setattr(sidecar.coordinator.moves, "request", breaks)
        with pytest.raises(KeyError):
            front.send(Request(1, hello("m1")))
        with pytest.raises(Broken, match="coordinator: KeyError"):
            sidecar.tasks.failed.result()

    with pytest.raises(Broken):
        run(test)


def test_a_turn_that_breaks_drops_the_partition_and_it_is_built_anew() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, hello("m1")))
        await front.reply(1)
        shard = sidecar.service.owners[0].shard
        assert shard is not None

        def breaks(turn: object, event: object, token: int) -> None:
            raise KeyError("a bug")

        shard._handlers[DescribeConsumerGroup] = {"consumer": breaks}
        front.send(Request(2, DescribeConsumerGroup("g")))
        assert (await front.reply(2)).code == Code.NOT_COORDINATOR
        assert sidecar.metrics.value("invariant_violations") == 1
        await until(lambda: sidecar.service.serving() == [0])
        front.send(Request(3, DescribeConsumerGroup("g")))
        assert [m.member_id for m in (await front.reply(3)).members] == ["m1"]

    run(test)
