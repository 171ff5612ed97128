"""Only a few large requests are handled at a time: each becomes ten or a hundred times as much memory as its bytes.

Symptom: a hundred requests of 200 KB, one on each connection, took 780 MB, and thousands would have ended the sidecar.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.api.access import lets_in
from sidecar.api.call import PAUSE, Ask, Call, Coordinate, Handler, Store, Want
from sidecar.api.handlers import HANDLERS
from sidecar.core.classic.events import SyncGroup
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.front import dispatcher
from sidecar.front.large import LARGE_BYTES, Sender
from sidecar.front.session import Session
from sidecar.kafka.lanes import Lane
from sidecar.link.messages import CommitEnded, Request
from sidecar.proxy.actions import Got
from sidecar.wire.apis import ALONE, SERVED, Api
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as st
from sidecar.wire.generated import sync_group as sy
from tests.front.reception import group, response, run
from tests.inprocess import messages
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, turns
from tests.inprocess.embedded_sidecar import run as house_run

NAMES = [f"topic-{n:060}" for n in range(LARGE_BYTES // 64)]
ASKED, ENOUGH = 3, 20
"""`large_requests`, and more turns of the loop than all of them need."""


def large(correlation: int) -> bytes:
    return request_frame(14, 5, correlation, "c", True, b"x" * LARGE_BYTES)


def run_with_dispatched(
    test: Callable[[EmbeddedFront, list[tuple[Session, Got]]], Coroutine[Any, Any, None]], **given: Any
) -> None:
    """Runs a test that gets the requests which the front dispatches, and answers them."""

    async def main() -> None:
        embedded = EmbeddedFront(large_requests=ASKED, **given)
        handled: list[tuple[Session, Got]] = []
        embedded.front.server.dispatch = lambda session, got: handled.append((session, got))
        await test(embedded, handled)

    run(lambda bench: main())


async def sent(embedded: EmbeddedFront, count: int, first: int = 0, host: str = "10.0.0.9") -> list[EmbeddedClient]:
    clients = [await embedded.client(host) for _ in range(count)]
    for n, client in enumerate(clients, first):
        client.send(large(n))
    await turns(ENOUGH)
    return clients


def numbers(handled: list[tuple[Session, Got]]) -> list[int]:
    return [got.correlation_id for _, got in handled]


def answer(handled: list[tuple[Session, Got]], n: int) -> None:
    session, got = handled[n]
    session.reply(got.token, response(got.correlation_id))


def test_the_others_wait_until_one_is_answered() -> None:
    async def test(embedded: EmbeddedFront, handled: list[tuple[Session, Got]]) -> None:
        await sent(embedded, 5)
        assert numbers(handled) == [0, 1, 2] and embedded.front.server.pauses["large"] >= 2
        (await embedded.client()).send(group(100))
        assert numbers(handled)[-1] == 100, "small ones wait for nobody"
        for n in (1, 0):
            answer(handled, n)
            await turns(ENOUGH)
        assert numbers(handled) == [0, 1, 2, 100, 3, 4]
        assert embedded.front.server.large.handled == ASKED

    run_with_dispatched(test)


def test_addresses_have_their_turns() -> None:
    async def test(embedded: EmbeddedFront, handled: list[tuple[Session, Got]]) -> None:
        await sent(embedded, 8)
        await sent(embedded, 1, first=100, host="10.0.0.1")
        for n in range(3):
            answer(handled, n)
            await turns(ENOUGH)
        assert numbers(handled) == [0, 1, 2, 3, 100, 4], "behind one of the other address, not behind five"

    run_with_dispatched(test)


def test_who_has_gone_has_no_turn_and_leaves_its_place() -> None:
    async def test(embedded: EmbeddedFront, handled: list[tuple[Session, Got]]) -> None:
        clients = await sent(embedded, 6)
        clients[3].close()
        clients[4].close()
        await turns(ENOUGH)
        assert numbers(handled) == [0, 1, 2]
        handled[0][0].close("malformed")
        await turns(ENOUGH)
        assert numbers(handled) == [0, 1, 2, 5]
        assert embedded.front.server.large.handled == ASKED

    run_with_dispatched(test)


def test_what_waits_is_counted_with_what_all_connections_hold() -> None:
    async def test(embedded: EmbeddedFront, handled: list[tuple[Session, Got]]) -> None:
        embedded.front.server.memory.own_bytes = 1_000
        await sent(embedded, 5)
        assert embedded.front.server.memory.reserved_bytes >= 2 * LARGE_BYTES
        for n in range(5):
            answer(handled, n)
            await turns(ENOUGH)
        assert embedded.front.server.memory.reserved_bytes == 0 == embedded.front.server.large.handled

    run_with_dispatched(test)


def test_large_answers_have_places_too() -> None:
    """Symptom: each connection could have an answer of 8 MiB in the making, by a request of some bytes."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await (await sidecar.client()).ask(messages.join("g", "m" * 20_000), 1)
        clients = [await sidecar.client() for _ in range(6)]
        for client in clients:
            await client.ask(cd.ConsumerGroupDescribeRequest(["nobody"]), 1)  # the broker has let it in
        front, working = sidecar.front, []
        begin = front.server.large._begin

        def begins(sender: Sender) -> None:
            begin(sender)
            working.append(front.server.large.handled)

        front.server.large._begin = begins  # type: ignore[method-assign]
        for client in clients:
            client.post(cd.ConsumerGroupDescribeRequest(["g"] * 20), 1)
        told = [await client.answer(cd.ConsumerGroupDescribeRequest(), 1) for client in clients]
        assert all(len(t.groups) == 20 for t in told)
        assert working == [1] * 6 and front.server.pauses["large"] >= 5 and front.server.large.handled == 0

    house_run(test, front={"large_requests": 1})


def joins_classic(member: str) -> tuple[Any, int]:
    protocols = [jg.JoinGroupRequestProtocol("range", b"m" * LARGE_BYTES)]
    return jg.JoinGroupRequest("g", 10_000, 10_000, member, None, "consumer", protocols), 5


def joins_consumer(member: str) -> tuple[Any, int]:
    request = ch.ConsumerGroupHeartbeatRequest("g", member, 0, rebalance_timeout_ms=10_000, topic_partitions=[])
    request.subscribed_topic_names = NAMES
    return request, 1


def joins_share(member: str) -> tuple[Any, int]:
    return sh.ShareGroupHeartbeatRequest("g", member, 0, None, NAMES), 1


def joins_streams(member: str) -> tuple[Any, int]:
    topology = st.Topology(0, [st.Subtopology("0", NAMES)])
    return st.StreamsGroupHeartbeatRequest("g", member, 0, 0, None, None, 10_000, topology, [], [], []), 1


@pytest.mark.parametrize("join", [joins_classic, joins_consumer, joins_share, joins_streams])
def test_members_that_wait_for_each_other_leave_their_places(join: Callable[[str], tuple[Any, int]]) -> None:
    """Ten members whose joins are large: the answer to the first one waits for the last one, or for the run of an
    assignor.

    Symptom: only six heartbeats in a second that joined with many topics were answered, as each kept its place for half
    a second, and nobody else's large request was looked at meanwhile."""

    async def main() -> None:
        embedded = EmbeddedFront(large_requests=1, share=True, streams=True)
        embedded.show()
        for n in range(10):
            client = await embedded.client()
            request, version = join(f"m{n}")
            client.post(request, version)
        for _ in range(10):
            await embedded.request()
        assert embedded.front.server.large.handled == 0

    run(lambda bench: main())


WANTS: dict[str, Callable[[Call], Want]] = {
    "the broker": lambda call: Ask(lets_in(call.correlation_id)),
    "another broker": lambda call: Store(2, Api.METADATA, 0, md.MetadataRequest([]).encode(0), False),
    "the coordinator": lambda call: Coordinate(ConsumerHeartbeat("g", "m", 0)),
    "its next slice": lambda call: PAUSE,
}


@pytest.mark.parametrize("wants", WANTS)
def test_a_client_that_goes_takes_no_place_afterwards(wants: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: three clients that went while another broker had their OffsetFetch ended all large requests for ever:
    the answer took a place for a session that had given back all it held."""

    def works(call: Call) -> Handler:
        yield PAUSE
        yield WANTS[wants](call)
        yield PAUSE
        return b""

    handlers: dict[int, Callable[[Call], Handler]] = dict.fromkeys(ALONE, works)
    monkeypatch.setattr(dispatcher, "HANDLERS", {**HANDLERS, **handlers})

    async def main() -> None:
        embedded = EmbeddedFront(large_requests=1)
        embedded.show()
        brokers, large = embedded.brokers, embedded.front.server.large
        for api in sorted(ALONE):
            client = await embedded.client()
            client.session.conn.served = SERVED  # brokers for which Metadata is looked into
            for node_id in brokers.nodes:
                brokers.pause(node_id)
            client.send(messages.smallest(api, "g"))
            await turns()
            client.close()
            for node_id in brokers.nodes:
                brokers.resume(node_id)
            if wants == "the coordinator":
                embedded.reply(await embedded.request(), HeartbeatReply())
            await turns()
            assert large.handled == large.parked == 0, Api(api).name

    run(lambda bench: main())


COMMIT = oc.OffsetCommitRequest(
    "g",
    1,
    "m",
    topics=[oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(p) for p in range(5_000)])],
)
SYNC = sy.SyncGroupRequest(
    "g", 1, "m", None, "consumer", "range", [sy.SyncGroupRequestAssignment("m", b"x" * LARGE_BYTES)]
)
LONG = 500
"""More turns of the loop than several large commits need in slices."""


class Hanging:
    """Clients with large commits that wait for a broker that stands still, or for the coordinator."""

    def __init__(self, **given: Any) -> None:
        self.embedded = EmbeddedFront(commit_lanes=1, **given)
        self.embedded.show(leaders=(2,), authorizer=False)
        self.large = self.embedded.front.server.large
        self.clients: list[EmbeddedClient] = []
        self.checks: list[Request] = []

    async def commits(self, count: int, checked: bool) -> None:
        await self.embedded.cluster.lane(2, Lane.COMMITS, 0)
        self.embedded.brokers.pause(2)
        for n in range(count):
            client = await self.embedded.client()
            client.post(COMMIT, 8)
            await turns(LONG)
            self.clients.append(client)
            sent = self.embedded.of(Request)[len(self.checks) :]
            for check in sent:
                self.checks.append(check)
                if checked:
                    self.embedded.reply(check, CheckReply(ticket=n + 1))
                    await turns(LONG)

    async def syncs(self) -> bool:
        """Returns whether a large SyncGroup gets to the coordinator at once."""
        leader = await self.embedded.client("10.0.0.1")
        leader.post(SYNC, 5)
        await turns()
        return any(isinstance(r.event, SyncGroup) for r in self.embedded.of(Request))


@pytest.mark.parametrize("checked", [True, False], ids=["another broker", "the coordinator"])
def test_who_waits_for_another_broker_or_the_coordinator_is_parked(checked: bool) -> None:
    """Symptom: three clients whose commits waited for one broker that hung stopped all large requests for 10 s, also
    the SyncGroups of groups at other brokers."""

    async def main() -> None:
        hanging = Hanging(large_requests=1, parked_large_requests=2)
        await hanging.commits(2, checked)
        assert (hanging.large.handled, hanging.large.parked) == (0, 2)
        assert await hanging.syncs()

    run(lambda bench: main())


def test_only_so_many_are_parked() -> None:
    async def main() -> None:
        hanging = Hanging(large_requests=1, parked_large_requests=2)
        await hanging.commits(4, True)
        assert (hanging.large.handled, hanging.large.parked, len(hanging.checks)) == (1, 2, 3)
        assert not await hanging.syncs()

    run(lambda bench: main())


def test_who_was_parked_goes_on_as_before() -> None:
    async def main() -> None:
        hanging = Hanging(large_requests=1, parked_large_requests=3)
        most, begin = 0, hanging.large._begin

        def begins(sender: Sender) -> None:
            nonlocal most
            begin(sender)
            most = max(most, hanging.large.handled)

        hanging.large._begin = begins  # type: ignore[method-assign]
        await hanging.commits(3, True)
        for client in hanging.clients:
            client.post(md.MetadataRequest([]), 9)
        hanging.embedded.brokers.resume(2)
        await turns(3 * LONG)
        for client in hanging.clients:
            commit, behind = client.received()
            told = oc.OffsetCommitResponse.decode(8, commit, 9)
            assert {p.error_code for p in told.topics[0].partitions} == {Code.NONE}
            assert int.from_bytes(behind[4:8], "big") == client._correlation, "in their order"
        assert (most, hanging.large.handled, hanging.large.parked) == (1, 0, 0)
        assert {m.ticket for m in hanging.embedded.of(CommitEnded) if m.sure} == {1, 2, 3}

    run(lambda bench: main())


def test_who_goes_while_it_waits_for_a_place_again_ends_its_commit() -> None:
    async def main() -> None:
        hanging = Hanging(large_requests=1, parked_large_requests=1)
        await hanging.commits(1, False)
        await sent_alone(hanging.embedded)
        hanging.embedded.reply(hanging.checks[0], CheckReply(ticket=7))
        await turns(LONG)
        assert (hanging.large.handled, hanging.large.parked) == (1, 1)
        hanging.clients[0].close()
        await turns(LONG)
        assert hanging.embedded.of(CommitEnded) == [CommitEnded(7, sure=True)]
        assert (hanging.large.handled, hanging.large.parked) == (1, 0)

    async def sent_alone(embedded: EmbeddedFront) -> None:
        """Another large request, which keeps the place."""
        embedded.front.server.dispatch = lambda session, got: None
        (await embedded.client()).send(large(1))
        await turns()

    run(lambda bench: main())
