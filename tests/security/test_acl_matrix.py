"""Every API of groups, with every right present or missing: through the sidecar as at the broker itself, while the
owner is beside the broker that keeps the offsets, and while it is elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.net import ConnectionLost
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import heartbeat as hb
from tests.security.ground import Secured
from tests.security.matrix_bench import (
    EVERYBODY,
    LEAVER,
    MINE,
    NOBODY,
    OPEN,
    OTHER,
    PROPERTIES,
    USERS,
    Bench,
    Site,
    different,
    start,
)
from tests.security.matrix_cases import CASES, Case, Question, joining

pytestmark = pytest.mark.tier("all")
BY_NAME = {c.name: c for c in CASES}
AT_ONCE = 16
"""Users that ask at the same time."""
SHOWN = 6


@dataclass
class Matrix:
    bench: Bench
    native: Site
    beside: Site
    direct: dict[tuple[str, int, str], Any] = field(default_factory=dict)
    """The broker's own answers, by case, version and user."""

    async def answers(self, case: Case, site: Site) -> dict[tuple[str, int, str], Any]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(version: int, user: str) -> Any:
            async with gate:
                return await case.ask(Question(self.bench, site, user, version))

        keys = [(case.name, v, u) for v in case.versions for u in USERS[case.users]]
        return dict(zip(keys, await asyncio.gather(*(one(v, u) for _, v, u in keys)), strict=True))

    def compare(self, case: Case, site: Site) -> None:
        if not any(name == case.name for name, *_ in self.direct):
            self.direct |= self.bench.run(self.answers(case, self.native))
        ours = self.bench.run(self.answers(case, site))
        wrong = [(k[1:], self.direct[k], ours[k]) for k in ours if ours[k] != self.direct[k]]
        if site.name == "away" and case.name in OTHER_WORDS:
            assert wrong
            wrong = [w for w in wrong if any(not d.endswith(OTHER_WORDS[case.name]) for d in different(*w[1:]))]
        if case.name in ENDS_NOBODY:
            assert wrong
            wrong = [w for w in wrong if not _ends_nobody(*w[1:])]
        if site.name == "away" and case.name in ONLY_BESIDE:
            assert wrong
            wrong = [w for w in wrong if w[2] != NOT_HERE or w[1][0] == Code.GROUP_AUTHORIZATION_FAILED]
        if site.name == "away" and case.passes:
            wrong = [w for w in wrong if not _only_elsewhere(*w[1:])]
        told = "\n".join(f"{who}: {'; '.join(different(*answers))}" for who, *answers in wrong[:SHOWN])
        assert not wrong, f"{len(wrong)} of {len(ours)} answers of {site.name} differ:\n{told}"
        same = case.name in SAME_FOR_ALL or case.name.endswith(f" of {OTHER}-nothing")
        assert same or len({repr(a) for a in ours.values()}) > 1


def codes(answer: Any) -> set[int]:
    """Returns all error codes in a response."""
    if isinstance(answer, dict):
        found = {answer["error_code"]} if "error_code" in answer else set()
        return found.union(*map(codes, answer.values()))
    return set().union(*map(codes, answer)) if isinstance(answer, list | tuple) else set()


def _only_elsewhere(theirs: Any, ours: Any) -> bool:
    """Whether they differ in that the broker beside the owner does not keep the group, and not in rights on it."""
    return Code.NOT_COORDINATOR in codes(ours) and Code.GROUP_AUTHORIZATION_FAILED not in codes([theirs, ours])


def _ends_nobody(theirs: Any, ours: Any) -> bool:
    """Whether they differ in that a member of no consumer group is told so here."""
    told = Code.GROUP_ID_NOT_FOUND, Code.UNKNOWN_MEMBER_ID
    return all(t == o or (t[0], o[0]) == told for t, o in zip(theirs, ours, strict=True))


ENDS_NOBODY = frozenset(("ConsumerGroupHeartbeat",))
"""A member whose group is not there, or is no consumer group, is told UNKNOWN_MEMBER_ID
(docs/reference/differences.md)."""
OTHER_WORDS = {
    "ConsumerGroupDescribe": "'Group mine-offsets is not a consumer group.' != 'Group mine-offsets not found.'",
}
"""The words for a group of which only offsets are there, at another broker (docs/reference/differences.md)."""
ONLY_BESIDE = frozenset(("ShareGroupHeartbeat of a new group", "StreamsGroupHeartbeat of a new group"))
"""Such a group is the broker's, and its members are told that its coordinator is the broker beside the owner
(docs/reference/differences.md)."""
NOT_HERE = (Code.NOT_COORDINATOR, None)
SAME_FOR_ALL = frozenset(
    ("SyncGroup without a protocol", "JoinGroup of another's group", "TxnOffsetCommit of another transaction")
)
"""No right changes the answer."""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    bench = start(Secured(tmp_path_factory.mktemp("matrix"), users=EVERYBODY, more=PROPERTIES))
    try:
        made = Matrix(bench, bench.direct(), bench.through("beside"))
        for site in (made.native, made.beside):
            bench.run(bench.populate(site))
        bench.run(bench.transaction(made.native, made.beside))
        yield made
    finally:
        bench.close()
        bench.kafka.stop()


@pytest.mark.parametrize("name", BY_NAME)
def test_the_owner_is_beside_the_offsets(matrix: Matrix, name: str) -> None:
    matrix.compare(BY_NAME[name], matrix.beside)


@pytest.fixture(scope="module")
def away(matrix: Matrix) -> Site:
    matrix.bench.move_owner()
    return matrix.bench.through("away")


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", BY_NAME)
def test_the_owner_is_elsewhere(matrix: Matrix, away: Site, name: str) -> None:
    assert away.port != matrix.beside.port
    matrix.compare(BY_NAME[name], away)


# ---- regular expressions ------------------------------------------------------------------------------------------
async def resolved(bench: Bench, site: Site, user: str) -> tuple[int, set[str]]:
    """The topics for which the expression of this user's member stands in the end."""
    group = bench.fresh(site, "regex")
    conn, admin = await bench.conn(user, site.port, site.protocol), await bench.admin(site)
    first = joining(group, None, "(open|secret|absent).*")
    res = await conn.request(ch, "ConsumerGroupHeartbeat", first)
    topics: set[str] = set()
    for _ in range(25):
        if res.error_code != Code.NONE:
            break
        again = ch.ConsumerGroupHeartbeatRequest(group, first.member_id, res.member_epoch, topic_partitions=[])
        res = await conn.request(ch, "ConsumerGroupHeartbeat", again)
        asked = cd.ConsumerGroupDescribeRequest([group])
        (told,) = (await admin.request(cd, "ConsumerGroupDescribe", asked)).groups
        topics |= {t.topic_name for m in told.members for t in m.target_assignment.topic_partitions}
        await asyncio.sleep(0.1)
    return res.error_code, topics


def test_a_regular_expression_stands_for_what_the_principal_may_describe(matrix: Matrix, away: Site) -> None:
    async def each() -> None:
        users = ("gR.tRD", "gR.tR", "gR.tD", "gR.t", "gD.tD")
        for site in (matrix.native, away):
            found = await asyncio.gather(*(resolved(matrix.bench, site, user) for user in users))
            sees = [(Code.NONE, {OPEN})] * 3
            assert found == [*sees, (Code.NONE, set()), (Code.GROUP_AUTHORIZATION_FAILED, set())], site.name

    matrix.bench.run(each())


# ---- clients that have not authenticated ----------------------------------------------------------------------------
@pytest.mark.parametrize("name", BY_NAME)
def test_who_has_not_authenticated_gets_nothing(matrix: Matrix, away: Site, name: str) -> None:
    case, bench = BY_NAME[name], matrix.bench

    async def each() -> None:
        for version in case.versions:
            bench.forget(user=NOBODY)
            await bench.conn(NOBODY, away.port, away.protocol)  # so far everybody gets
            with pytest.raises(ConnectionLost):
                await case.ask(Question(bench, away, NOBODY, version))

    bench.run(each())


# ---- rights that are taken away -------------------------------------------------------------------------------------
CACHE_MS, BEAT_S, MARGIN_S = 2_000, 0.05, 1.0


class Member:
    """The only member of a group; it sends the same heartbeat again and again."""

    def __init__(self, bench: Bench, site: Site) -> None:
        self.bench, self.site, self.group = bench, site, bench.fresh(site, "leaver")
        self.refused_s: float | None = None
        self.beat: Any = None

    async def join(self) -> None:
        raise NotImplementedError

    async def ask(self, module: Any, name: str, req: Any) -> Any:
        conn = await self.bench.conn(LEAVER, self.site.port, self.site.protocol)
        return await conn.request(module, name, req)

    async def keep_beating(self, until_s: float) -> None:
        """Raises AssertionError for any other error than that it has no rights any more."""
        while self.refused_s is None and time.monotonic() < until_s:
            res = await self.ask(*self.beat)
            if res.error_code == Code.GROUP_AUTHORIZATION_FAILED:
                self.refused_s = time.monotonic()
            else:
                assert res.error_code == Code.NONE, (self.site.name, res)
            await asyncio.sleep(BEAT_S)


class Consumer(Member):
    async def join(self) -> None:
        first = joining(self.group, [OPEN])
        res = await self.ask(ch, "ConsumerGroupHeartbeat", first)
        assert res.error_code == Code.NONE
        owned = [ch.TopicPartitions(t.topic_id, t.partitions) for t in res.assignment.topic_partitions]
        beat = ch.ConsumerGroupHeartbeatRequest(self.group, first.member_id, res.member_epoch, topic_partitions=owned)
        self.beat = (ch, "ConsumerGroupHeartbeat", beat)
        assert (await self.ask(*self.beat)).error_code == Code.NONE
        beat.topic_partitions = None


class Classic(Member):
    async def join(self) -> None:
        self.group = await self.bench.classic(self.site, self.group)
        member, generation = self.bench.members[self.group]
        self.beat = (hb, "Heartbeat", hb.HeartbeatRequest(self.group, generation, member))


def test_a_member_that_loses_its_rights_is_refused_soon(matrix: Matrix, away: Site) -> None:
    """At the sidecar within `authorisation_cache_ms`, though it answers steady heartbeats (`limits.steady_replies`, on
    here as by default) without asking anybody."""
    bench = matrix.bench
    bench.restart_with(SIDECAR_AUTHORISATION_CACHE_MS=str(CACHE_MS))
    site = bench.through("cached")
    read = [(ResourceType.GROUP, f"{s.prefix}{MINE}", AclOperation.READ) for s in (matrix.native, site)]
    bench.allow(LEAVER, *read, (ResourceType.TOPIC, OPEN, AclOperation.DESCRIBE))
    members = [kind(bench, s) for kind in (Consumer, Classic) for s in (matrix.native, site)]

    async def keep_beating(for_s: float) -> None:
        await asyncio.gather(*(m.keep_beating(time.monotonic() + for_s) for m in members))

    async def begin() -> None:
        for m in members:
            await m.join()

    bench.run(begin())
    bench.run(keep_beating(3 * CACHE_MS / 1000))  # longer than an answer of the authorizer is kept
    assert all(m.refused_s is None for m in members)
    bench.allow(LEAVER, *read, allowed=False)
    bench.run(keep_beating(CACHE_MS / 1000 + 5))
    kafka = max(m.refused_s or 1e9 for m in members if m.site is matrix.native)
    for m in members:
        assert m.refused_s is not None, f"{type(m).__name__} at {m.site.name} was never refused"
        assert m.refused_s - kafka < CACHE_MS / 1000 + MARGIN_S, f"{type(m).__name__} at {m.site.name}"
