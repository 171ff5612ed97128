"""Live share groups and streams groups move between broker and sidecar, with Java's share consumer and Kafka Streams:
no client ends, no record is lost, and with exactly once none is counted twice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from tests.clients.ground import ENV, make_topic, produce
from tests.clients.moving import at_the_broker, groups, where
from tests.clients.moving_rounds import KILL_WITHIN_S, move
from tests.clients.test_share import Reader, from_the_start, lag, read
from tests.clients.test_streams import STREAMING, TASKS, App, exactly
from tests.matrix.table import STREAMS

pytestmark = pytest.mark.tier("all")
RECORDS = 1_000
ALL_KINDS = {**STREAMING, **ENV, "SIDECAR_GROUPS__KINDS": '["classic", "consumer", "share", "streams"]'}


def running(folder: Path, brokers: int) -> Iterator[LocalKafka]:
    """Yields a cluster whose sidecars coordinate groups of all kinds."""
    STREAMS.build()  # fetches the jars
    k = LocalKafka(folder, brokers=brokers, sidecar_env=ALL_KINDS)
    try:
        k.start()
        k.wait_ready()
        yield k
    finally:
        k.stop()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    yield from running(tmp_path_factory.mktemp("moves-of-kinds"), brokers=1)


def moves(k: LocalKafka, verb: str, group: str) -> None:
    begun = time.monotonic()
    code, told = groups(k, verb, group)
    assert code == 0, told
    print(verb, "took", round(time.monotonic() - begun, 2))
    assert where(k, k.nodes[0], group) == ("sidecar" if verb == "adopt" else "broker")


def the_owner_dies(k: LocalKafka, group: str) -> None:
    node = k.nodes[0]
    assert node.sidecar is not None
    node.sidecar.kill()
    k.start_sidecar(node)
    wait_until("the group's next owner", lambda: where(k, node, group) == "sidecar", 180)


def members_there(k: LocalKafka, group: str, kind: str) -> int:
    """Without the placeholder."""
    found = at_the_broker(k, group)
    return len(found.members) if found.kind == kind else 0


def test_a_share_group_there_and_back_under_live_members(kafka: LocalKafka) -> None:
    group, topic = "moved-share", make_topic(kafka, "moved-shared", 4)
    asyncio.run(from_the_start(kafka, group))
    readers = [Reader(kafka, f"moved-reader-{i}", group, topic) for i in range(2)]
    try:
        wait_until("two members at the broker", lambda: members_there(kafka, group, native.SHARE) == 2, 90)
        for rounds, verb in enumerate(("", "adopt", "kill", "release"), 1):
            produce(kafka, topic, RECORDS // 2)
            if verb == "kill":
                the_owner_dies(kafka, group)
            elif verb:
                moves(kafka, verb, group)
            produce(kafka, topic, RECORDS // 2)

            def all_read(times: int = 2 * rounds) -> bool:
                found = read(readers)
                return all(found[v] >= times for v in range(RECORDS // 2))

            wait_until(f"all records after {verb or 'the start'}", all_read, 120)
            wait_until("all acknowledged", lambda: asyncio.run(lag(kafka, group)) == 0, 60)
            if verb == "adopt":
                assert members_there(kafka, group, native.SHARE) == 0, "they are the sidecar's"
        wait_until("two members at the broker", lambda: members_there(kafka, group, native.SHARE) == 2, 60)
        assert all(r.process.alive for r in readers), "no client dies of an answer"
    finally:
        for reader in readers:
            reader.process.kill()


def test_a_streams_group_there_and_back_under_live_members(kafka: LocalKafka) -> None:
    app = App(kafka, "exactly_once_v2", "moved")
    try:
        wait_until("two members at the broker", lambda: members_there(kafka, app.group, native.STREAMS) == 2, 120)
        wait_until("all tasks", lambda: app.tasks() == TASKS and at_the_broker(kafka, app.group).stable, 90)
        app.produce()
        wait_until("all words", lambda: exactly(app, 1), 90)
        before = {m.member_id: m.member_epoch for m in app.members()}
        moves(kafka, "adopt", app.group)
        assert members_there(kafka, app.group, native.STREAMS) == 0, "they are the sidecar's"
        assert app.tasks() == TASKS, "nobody gave up a task"
        app.produce()
        wait_until("all words after the adoption", lambda: exactly(app, 2), 120)
        assert {m.member_id: m.member_epoch for m in app.members()} == before, "nobody joined again"
        the_owner_dies(kafka, app.group)
        app.produce()
        wait_until("all words after a takeover", lambda: exactly(app, 3), 120)
        moves(kafka, "release", app.group)
        app.produce()
        wait_until("two members at the broker", lambda: members_there(kafka, app.group, native.STREAMS) == 2, 120)
        wait_until("all words after the release", lambda: exactly(app, 4), 120)
        wait_until("all tasks", lambda: app.tasks() == TASKS, 60)
        assert all(i.alive for i in app.instances), "no client dies of an answer"
    finally:
        app.stop()


# ---- an owner that is killed in the middle ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    yield from running(tmp_path_factory.mktemp("killed-moves-of-kinds"), brokers=2)


@dataclass
class Live:
    """Two members of a group. `produce` is called for each round, and `consumed(rounds)` says whether they have it."""

    kafka: LocalKafka
    group: str
    kind: str
    produce: Callable[[], None]
    consumed: Callable[[int], bool]
    rounds: int = field(default=0)

    def goes_on(self, what: str) -> None:
        at_broker = 0 if what.endswith("adopt") else 2
        wait_until("the members' place", lambda: members_there(self.kafka, self.group, self.kind) == at_broker, 120)
        self.produce()
        self.rounds += 1
        wait_until(f"all records after {what}", lambda: self.consumed(self.rounds), 180)


def there_and_back(live: Live) -> None:
    """Twice, and the owner is killed (SIGKILL) in each move at some moment."""
    live.goes_on("the start")
    for verb in ("adopt", "release") * 2:
        print(move(live, verb, random.uniform(0, KILL_WITHIN_S[verb]), members=2))


@pytest.mark.tier("nightly")
def test_the_owner_of_a_share_group_is_killed_in_each_move(two: LocalKafka) -> None:
    group, topic = "killed-share", make_topic(two, "killed-shared", 4)
    asyncio.run(from_the_start(two, group))
    readers = [Reader(two, f"killed-reader-{i}", group, topic) for i in range(2)]

    def consumed(rounds: int) -> bool:
        found = read(readers)
        return all(found[v] >= rounds for v in range(RECORDS))

    try:
        there_and_back(Live(two, group, native.SHARE, lambda: produce(two, topic, RECORDS), consumed))
        assert all(r.process.alive for r in readers), "no client dies of an answer"
    finally:
        for reader in readers:
            reader.process.kill()


@pytest.mark.tier("nightly")
def test_the_owner_of_a_streams_group_is_killed_in_each_move(two: LocalKafka) -> None:
    app = App(two, "exactly_once_v2", "killed")
    try:
        there_and_back(Live(two, app.group, native.STREAMS, app.produce, lambda rounds: exactly(app, rounds)))
        assert all(i.alive for i in app.instances), "no client dies of an answer"
    finally:
        app.stop()
