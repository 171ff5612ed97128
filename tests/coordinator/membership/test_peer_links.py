"""Peers of a sidecar: links that die, pings that nobody answers, and who is removed from the owners' group for it."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.coordinator.membership import owners_group as module
from sidecar.coordinator.membership import peer_links as peers_module
from sidecar.coordinator.membership.owners_group import sidecar_of
from sidecar.coordinator.membership.peer_links import PeerListener, PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.lanes import FENCES, Lane
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from tests.coordinator.membership.test_owners_group import BOTH, SETTINGS, Make, Sidecar, agree, run
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.clock import run as on_virtual_time
from tests.inprocess.embedded_sidecar import until

LINKED = replace(SETTINGS, peers=PeerSettings())


# ---- links
WITHIN_S = 0.1
"""From the death of a peer until the others have its partitions, whatever else waits for a broker."""


class Peer:
    """The listener of another sidecar, whose process can die."""

    def __init__(self) -> None:
        self.links: list[asyncio.StreamWriter] = []

    async def start(self, port: int = 0) -> int:
        async def linked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.links.append(writer)
            await reader.read(1)
            if writer in self.links:
                self.links.remove(writer)
            writer.close()

        self.server = await asyncio.start_server(linked, "127.0.0.1", port)
        return int(self.server.sockets[0].getsockname()[1])

    def drop(self) -> None:
        """Breaks the peer's links; it still listens."""
        for writer in self.links:
            writer.close()
        self.links.clear()

    def die(self) -> None:
        self.server.close()
        self.drop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that are added to the time as ownership sees it: a link that is old is tried again quickly."""
    ahead = [0.0]
    ours = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], time=time.time)
    monkeypatch.setattr(module, "time", ours)
    monkeypatch.setattr(peers_module, "time", ours)
    return ahead


async def linked(make: Make, peer: Peer) -> tuple[Sidecar, Sidecar]:
    """Two sidecars. The first one has a link to the second, where this peer listens."""
    one = make(1, LINKED)
    await until(lambda: one.assigned)
    two = make(2, SETTINGS, await peer.start())
    await agree(one, two)
    await until(lambda: peer.links)
    return one, two


async def kill(sidecar: Sidecar, peer: Peer, clock: list[float]) -> None:
    """Kills the sidecar's process: its tasks end and its links break."""
    for task in sidecar.ownership._tasks:
        task.cancel()
    clock[0] += 2
    peer.die()


def test_a_peer_whose_link_dies_is_removed_from_the_group(clock: list[float]) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        await kill(two, peer, clock)
        await until(lambda: one.owners == (1, 1, 1, 1))
        (left,) = brokers.requests(Api.LEAVE_GROUP)
        assert [m.member_id for m in left.members] == ["member-2"]
        assert one.lines.fields("peer lost; removing it from the owners' group")["peer"] == 2

    run(test)


def test_a_peer_that_dies_while_the_others_join_is_removed_all_the_same(clock: list[float]) -> None:
    """Symptom: a peer that died during a rebalance held it up until its session was over. Cause: the LeaveGroup for it
    stood behind our own JoinGroup, and a broker answers the requests of a connection one by one."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        for task in two.ownership._tasks:
            task.cancel()
        joined = brokers.count(Api.JOIN_GROUP)
        one.group.rebalance()
        await until(lambda: brokers.count(Api.JOIN_GROUP) > joined)
        clock[0] += 2
        peer.die()
        await until(lambda: one.owners == (1, 1, 1, 1), 1.0)

    run(test)


def test_a_peer_is_removed_whatever_hangs_on_the_other_lanes(clock: list[float]) -> None:
    """A commit waits for all in-sync replicas. The LeaveGroup for the peer shared a connection with an eighth of them:
    the peer stayed for 2 s, and then their clients were closed."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        node = await one.cluster.coordinator_node(one.ownership.settings.group_id, 0)
        busy = [lane for lane in Lane if lane not in (Lane.OWNERS, Lane.REMOVAL)]
        lanes = [await one.cluster.lane(node, lane, which) for lane in busy for which in range(FENCES)]
        hung = brokers.faults.hang(Api.OFFSET_COMMIT, times=len(lanes))
        commit = oc.OffsetCommitRequest("g", 1, "m", topics=[])
        waiting = [asyncio.ensure_future(conn.request(oc, "OffsetCommit", commit)) for conn in lanes]
        await until(lambda: hung.met == len(lanes))
        began_s = asyncio.get_running_loop().time()
        await kill(two, peer, clock)
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert asyncio.get_running_loop().time() - began_s <= WITHIN_S
        assert not any(commit.done() for commit in waiting)
        hung.release()
        await asyncio.gather(*waiting)

    run(test)


def test_a_peer_is_removed_again_where_another_broker_coordinates_the_group(clock: list[float]) -> None:
    """The former coordinator has answered its removal and died before that was written down, so the next one waits for
    it. Found by the simulation: its partitions were nobody's until its session was over."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        forgotten = brokers.faults.fail(Api.LEAVE_GROUP, Code.NONE)
        brokers.faults.drop(Api.JOIN_GROUP)
        await kill(two, peer, clock)
        await until(lambda: forgotten.met)
        brokers.down.add(1)
        await until(lambda: one.owners == (1, 1, 1, 1), 1.0)
        assert brokers.count(Api.LEAVE_GROUP) == 2

    run(test)


def test_a_peer_is_removed_again_though_it_was_lost_during_a_join(clock: list[float]) -> None:
    """The same for a peer that was removed after this sidecar's SyncGroup was sent: its generation has the peer."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        hung = brokers.faults.hang(Api.SYNC_GROUP, matches=lambda req: req.member_id == one.ownership.member_id)
        one.group.rebalance()
        await until(lambda: hung.met)
        forgotten = brokers.faults.fail(Api.LEAVE_GROUP, Code.NONE)
        await kill(two, peer, clock)
        await until(lambda: forgotten.met)
        lost = brokers.faults.drop(Api.JOIN_GROUP)
        hung.release()
        await until(lambda: lost.met)
        brokers.down.add(1)
        await until(lambda: one.owners == (1, 1, 1, 1), 1.0)
        assert brokers.count(Api.LEAVE_GROUP) == 2

    run(test)


def test_a_link_that_breaks_is_made_again_when_the_peer_lives(clock: list[float]) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = make(1, LINKED), make(2, SETTINGS, await peer.start())
        await agree(one, two)
        await until(lambda: peer.links)
        clock[0] += 2
        peer.drop()
        await until(lambda: peer.links)
        assert brokers.count(Api.LEAVE_GROUP) == 0 and one.lines.events("warning") == []
        peer.die()

    run(test)


@pytest.mark.parametrize("code", (socket.EAI_AGAIN, socket.EAI_NONAME))
def test_a_name_server_that_does_not_answer_says_nothing_about_a_peer(
    code: int, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer whose name is gone is removed, as with Kubernetes, where a pod's name goes with it."""
    asked: list[str] = []

    async def addresses_of(host: str) -> list[str]:
        if not broken:
            return [host]
        asked.append(host)
        raise socket.gaierror(code, "no")

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        await linked(make, peer)
        broken.append(True)
        clock[0] += 2
        peer.drop()
        await until(lambda: len(asked) > 2 or brokers.count(Api.LEAVE_GROUP))
        removed = code == socket.EAI_NONAME
        assert bool(brokers.count(Api.LEAVE_GROUP)) == removed
        if not removed:
            broken.clear()
            await until(lambda: peer.links)

    broken: list[bool] = []
    monkeypatch.setattr(peers_module, "addresses_of", addresses_of)
    run(test)


def test_a_peer_that_was_never_reached_is_left_to_the_brokers_and_tried_again(clock: list[float]) -> None:
    """The peer may have just started, or stand where this sidecar cannot reach it."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        port = await peer.start()
        peer.die()
        one, two = make(1, LINKED), make(2, SETTINGS, port)
        await agree(one, two)
        await asyncio.sleep(0.1)
        assert brokers.count(Api.LEAVE_GROUP) == 0 and one.owners == BOTH
        await peer.start(port)
        await until(lambda: peer.links)
        await kill(two, peer, clock)
        await until(lambda: one.owners == (1, 1, 1, 1))

    run(test)


def test_a_peer_that_has_joined_anew_since_it_was_linked_is_removed_when_it_dies(clock: list[float]) -> None:
    """Symptom: after a peer had lost its session once, its death was noticed by the session only, 6 s later. Cause: the
    link knew the member id of its first day (L3 of the safety review)."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = await linked(make, peer)
        first = two.ownership.member_id
        one.group.expel(first)
        await until(lambda: two.ownership.member_id not in ("", first))
        await agree(one, two)
        await asyncio.sleep(0.05)
        await until(lambda: peer.links)
        await kill(two, peer, clock)
        await until(lambda: one.owners == (1, 1, 1, 1))

    run(test)


def test_a_peer_that_has_left_is_linked_no_more(clock: list[float]) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Peer()
        one, two = make(1, LINKED), make(2, SETTINGS, await peer.start())
        await agree(one, two)
        await until(lambda: peer.links)
        await two.ownership.stop()
        await until(lambda: one.owners == (1, 1, 1, 1))
        await until(lambda: one.ownership.peers._watched == {})
        peer.die()

    run(test)


# ---- pings
PINGED = replace(SETTINGS, peers=PeerSettings(ping_s=0.02, silence_s=0.1))


class Sleeper(asyncio.Protocol):
    """A peer that answers pings until it stands still. Its links stay open."""

    def __init__(self) -> None:
        self.still = False
        self.pings = 0
        self.port = 0

    async def start(self) -> Sleeper:
        server = await asyncio.get_running_loop().create_server(lambda: self, "127.0.0.1", 0)
        self.port = int(server.sockets[0].getsockname()[1])
        return self

    def send_left(self) -> None:
        raise AssertionError("it never leaves in order")

    def send_topics(self) -> None:
        raise AssertionError("no topics are changed through it")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.pings += 1
        if not self.still:
            self.transport.write(data)


async def pinged(
    make: Make, peer: Sleeper, pings: int = 1, settings: OwnershipSettings = PINGED
) -> tuple[Sidecar, Sidecar]:
    """Two sidecars. The first one pings the second, for which this peer answers; it has been asked more often than
    that."""
    one = make(1, settings)
    await until(lambda: one.assigned)
    two = make(2, SETTINGS, answers=await peer.start())
    await agree(one, two)
    await until(lambda: peer.pings > pings)
    return one, two


def test_a_peer_that_withdraws_says_so_to_the_others() -> None:
    """Symptom: all sidecars were thrown out of their group while a dead broker held up the answers to heartbeats, which
    tell of a rebalance, for longer than its timeout."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        listeners = [await PeerListener.open(["127.0.0.1"], 0) for _ in range(2)]
        unheard = replace(PINGED, heartbeat_ms=60_000)
        one, two = (make(n + 1, unheard, answers=listeners[n]) for n in range(2))
        await agree(one, two)
        await until(lambda: listeners[1]._links)
        two.ownership.withdraw("its broker is gone")
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert one.suspects == [] and two.ownership.withdrawn
        for listener in listeners:
            listener.close()

    run(test)


def test_a_peer_through_which_topics_changed_says_so_to_the_others() -> None:
    """Symptom: who made a topic through one sidecar had its members wait for up to two seconds at the others."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        listeners = [await PeerListener.open(["127.0.0.1"], 0) for _ in range(2)]
        one, two = (make(n + 1, PINGED, answers=listeners[n]) for n in range(2))
        await agree(one, two)
        await until(lambda: listeners[1]._links)
        listeners[1].send_topics()
        await until(lambda: one.told_of_topics == 1)
        assert two.told_of_topics == 0 and one.suspects == two.suspects == []
        for listener in listeners:
            listener.close()

    run(test)


def test_a_peer_says_whether_it_is_ready_and_an_older_one_does_not() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        listeners = [await PeerListener.open(["127.0.0.1"], 0) for _ in range(2)]
        one, two = (make(n + 1, PINGED, answers=listeners[n]) for n in range(2))
        await agree(one, two)
        ready = [True]
        await until(lambda: one.ownership.peers._answered)
        assert sidecar_of(one.ownership, 2)[1] is None
        listeners[1].ready = lambda: ready[0]
        await until(lambda: sidecar_of(one.ownership, 2)[1] is True)
        ready[0] = False
        await until(lambda: sidecar_of(one.ownership, 2)[1] is False)
        listeners[1].close()
        await until(lambda: sidecar_of(one.ownership, 2)[1] is None)
        listeners[0].close()

    run(test)


def test_a_peer_that_stands_still_is_suspected_and_then_removed() -> None:
    """Symptom: the groups of a sidecar whose process was suspended, or whose host was cut off, stood still until its
    session was over, 4 to 9 s. Cause: a link says nothing as long as nobody closes it (L6 of the safety review)."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Sleeper()
        one, two = await pinged(make, peer, 3)
        assert one.suspects == []
        for task in two.ownership._tasks:
            task.cancel()
        peer.still = True
        await until(lambda: one.suspects == [frozenset({2})])
        assert brokers.count(Api.LEAVE_GROUP) == 0, "it is too early for that"
        await until(lambda: one.owners == (1, 1, 1, 1))
        told = one.lines.fields("peer lost; removing it from the owners' group")
        assert (told["peer"], told["error"]) == (2, "no answer to a ping for 0.1 s")
        assert one.suspects[-1] == frozenset()

    run(test)


def test_a_peer_that_answers_again_in_time_stays() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Sleeper()
        one, _ = await pinged(make, peer, settings=replace(SETTINGS, peers=PeerSettings(ping_s=0.02, silence_s=5.0)))
        peer.still = True
        await until(lambda: one.suspects == [frozenset({2})])
        peer.still = False
        await until(lambda: one.suspects == [frozenset({2}), frozenset()])
        assert brokers.count(Api.LEAVE_GROUP) == 0

    run(test)


class Cut(Sleeper):
    """A peer whose links are cut when it has answered so often on each."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self.answers = answers
        self.cuts = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.left = self.answers

    def data_received(self, data: bytes) -> None:
        super().data_received(data if self.left else b"")
        self.left -= 1
        if self.left <= 0:
            self.cuts += 1
            self.transport.close()


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_links_that_are_cut_again_and_again_hold_requests_back_for_a_moment_only(
    answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: a peer was suspected for as long as somebody cut its links, and all requests for its groups waited."""
    monkeypatch.setattr(peers_module, "CALM_S", 1.0)
    monkeypatch.setattr(peers_module, "AGAIN_S", 0.05)

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Cut(answers)
        settings = replace(PINGED, heartbeat_ms=500)
        one = make(1, settings)
        await until(lambda: one.assigned)
        make(2, settings, answers=await peer.start())
        await until(lambda: peer.cuts)
        looks: list[bool] = []

        def looked_often() -> bool:
            looks.append(bool(one.suspects and one.suspects[-1]))
            return peer.cuts > 20

        await until(looked_often)
        assert sum(looks) < len(looks) / 2, "for 0.1 s, and until it is linked again, of each second"
        assert one.owners == BOTH

    run(test)


def test_a_peer_that_has_never_answered_a_ping_is_left_to_the_brokers() -> None:
    """Something else may listen there, or only look as if it did."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Sleeper()
        peer.still = True
        one, _ = await pinged(make, peer, 20)
        assert brokers.count(Api.LEAVE_GROUP) == 0 and one.suspects == []

    run(test)


def test_a_process_that_stood_still_itself_blames_nobody(clock: list[float]) -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Sleeper()
        await pinged(make, peer)
        peer.still = True
        for _ in range(30):
            clock[0] += 0.05
            await asyncio.sleep(0.005)
        assert brokers.count(Api.LEAVE_GROUP) == 0

    run(test)


def test_a_lost_peer_is_removed_as_soon_as_somebody_coordinates_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers_module, "AGAIN_S", 0.01)

    async def test(brokers: FakeBrokers, make: Make) -> None:
        peer = Sleeper()
        one, two = await pinged(make, peer)
        for task in two.ownership._tasks:
            task.cancel()
        brokers.faults.fail(Api.LEAVE_GROUP, Code.COORDINATOR_LOAD_IN_PROGRESS)
        peer.still = True
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert brokers.count(Api.LEAVE_GROUP) == 2

    run(test)


def test_peers_are_told_the_port_that_leads_here() -> None:
    async def test() -> None:
        here, mapped = await PeerListener.open(["127.0.0.1"], 0), await PeerListener.open(["127.0.0.1"], 0, 7001)
        assert here.port not in (0, 7001) and mapped.port == 7001
        here.close()
        mapped.close()

    on_virtual_time(test())


def test_roster_keep_no_peer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: 1,000 links of anybody, and every later peer was closed at once."""
    monkeypatch.setattr(peers_module, "LISTENS_MAX", 4)

    async def test() -> None:
        here = await PeerListener.open(["127.0.0.1"], 0)
        theirs: dict[str, Any] = {"port": here.port, "local_addr": ("127.0.0.2", 0)}
        strangers = [await asyncio.open_connection("127.0.0.1", **theirs) for _ in range(4)]
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        for _ in range(6):
            writer.write(b".")
            assert await reader.readexactly(1) == b"."
            strangers.append(await asyncio.open_connection("127.0.0.1", **theirs))
            assert len(here._links) <= 4
        for _, other in (*strangers, (reader, writer)):
            other.close()
        here.close()

    on_virtual_time(test())


def test_sidecars_answer_each_others_pings() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        listeners = [await PeerListener.open(["127.0.0.1"], 0) for _ in range(2)]
        one, two = (make(n + 1, PINGED, answers=listeners[n]) for n in range(2))
        await agree(one, two)
        await asyncio.sleep(0.3)
        assert one.suspects == two.suspects == [] and brokers.count(Api.LEAVE_GROUP) == 0
        for task in two.ownership._tasks:
            task.cancel()
        listeners[1].close()
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert one.suspects[0] == frozenset({2}), "as soon as the link is closed"
        listeners[0].close()

    run(test)
