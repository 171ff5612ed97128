"""Background work of the coordinator: assignor runs whose bytes are made beforehand, and regular expressions, which
where the broker has an authorizer are shown to it on the connection of whoever asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from sidecar.assign import BUILT_IN, UNIFORM
from sidecar.assign.spec import Assignor
from sidecar.coordinator.runtime import coordinator as module
from sidecar.coordinator.runtime import regex_task
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.consumer.records import Kind, RegexRecord, TargetMemberRecord
from sidecar.core.runtime.records import Record
from sidecar.core.vocabulary.errors import Code
from sidecar.link.loopback import Loopback
from sidecar.link.messages import AskAccess
from sidecar.state.codec import Encoded, Stamp, owner_epoch_of
from sidecar.state.keys import decode_key
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, turns, until
from tests.inprocess.messages import assigned, beat, join

AUTHORIZER = {"authorizer.class.name": ("org.apache.kafka.metadata.authorizer.StandardAuthorizer", 4)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)


def run(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]], authorizer: bool = False, **given: Any) -> None:
    async def main() -> None:
        sidecar = EmbeddedSidecar(**{"partitions": 1, **given})
        sidecar.brokers.settings.update(AUTHORIZER if authorizer else {})
        async with sidecar:
            await sidecar.topics(orders=4, payments=2)
            await test(sidecar)

    clock.run(main())


def stored(sidecar: EmbeddedSidecar, kind: str) -> list[tuple[Record, int, Encoded]]:
    """Records of this kind in the log: decoded, with their revision, and as they stand there."""
    found = []
    for r in sidecar.brokers.log().records:
        key = decode_key(r.key)
        if key.kind == kind and r.value is not None:
            found.append((*sidecar.codec.decode(key, r.value), Encoded(r.key, r.value)))
    return found


# ---- assignors ------------------------------------------------------------------------------------------------------
def test_the_bytes_that_the_background_run_has_made_are_the_ones_written(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[str] = []
    whole: list[int] = []
    encode_one, prepared = Encoder._one, Encoder.prepared

    def spied(self: Encoder, r: Record, stamp: Stamp) -> Encoded:
        one_by_one.append(type(r).__name__)
        return encode_one(self, r, stamp)

    def seen(self: Encoder, inp: Any, made: Any) -> None:
        whole.append(len(made.values))
        prepared(self, inp, made)

    monkeypatch.setattr(Encoder, "_one", spied)
    monkeypatch.setattr(Encoder, "prepared", seen)

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        first = await client.ask(join("g", "m1"), 1)
        assert assigned(first) == {sidecar.topic_id("orders"): [0, 1, 2, 3]}
        second = await (await sidecar.client()).ask(join("g", "m2"), 1)
        assert second.error_code == Code.NONE
        await until(lambda: len(stored(sidecar, Kind.TARGET_MEMBER)) == 3)
        assert whole == [1, 2]
        assert "TargetMemberRecord" not in one_by_one and "TargetRecord" not in one_by_one
        for record, revision, encoded in stored(sidecar, Kind.TARGET_MEMBER):
            assert isinstance(record, TargetMemberRecord) and encoded.value is not None
            time_ms = sidecar.codec.schemas.decode(encoded.value)["time_ms"]
            stamp = Stamp(owner_epoch_of(encoded.value), time_ms)
            assert sidecar.codec.encode(record, stamp, revision) == encoded
        assert [revision for _, revision, _ in stored(sidecar, Kind.TARGET_MEMBER)] == [1, 2, 1]

    run(test, consumer={"assignment_interval_ms": 0})


def test_without_offload_they_are_made_one_by_one_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        for name in ("m1", "m2"):
            await (await sidecar.client()).ask(join("g", name), 1)
        told = [r for r, _, _ in stored(sidecar, Kind.TARGET_MEMBER)]
        assert [(r.sub_id, r.why) for r in told] == [
            ("m1", "target of epoch 2 by uniform"),
            ("m1", "target of epoch 3 by uniform"),
            ("m2", "target of epoch 3 by uniform"),
        ]

    run(test, consumer={"assignment_interval_ms": 0, "assignor_offload_enable": False})


class Gate:
    """An assignor that does not go on before it is told to, or fails."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.started = threading.Event()
        self.runs = 0
        self.fails = False

    def __call__(self, spec: Any) -> Any:
        self.runs += 1
        self.started.set()
        self.open.wait(3)
        if self.fails:
            raise RuntimeError("the plug-in's own fault")
        return UNIFORM(spec)


def assignors(gate: Gate) -> Mapping[str, Assignor]:
    return {**BUILT_IN, "gate": gate}


GATED = {"assignors": ("gate", "uniform", "range"), "join_wait_ms": 0}


def test_a_run_of_an_attempt_that_is_over_is_dropped() -> None:
    gate = Gate()

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await client.ask(join("g", "m1"), 1)
        await until(gate.started.is_set)
        sidecar.assign(2)
        await sidecar.own()
        await until(lambda: not sidecar.owner_of("g").loader.queue.left)
        await sidecar.all_joined()
        before = len(sidecar.brokers.log().records)
        gate.open.set()
        await until(lambda: sidecar.background.idle_ratio() > 0 and not sidecar.background._running)
        await turns()
        assert len(sidecar.brokers.log().records) == before
        reply = await client.ask(beat("g", "m1", 1), 1)
        assert reply.error_code == Code.NONE

    run(test, assignors=assignors(gate), consumer=GATED)


def test_an_assignor_that_fails_is_told_and_counted() -> None:
    gate = Gate()
    gate.fails = True
    gate.open.set()

    async def test(sidecar: EmbeddedSidecar) -> None:
        await (await sidecar.client()).ask(join("g", "m1"), 1)
        await until(lambda: sidecar.metrics.value("assignor_failures", "gate") == 1)
        assert "the plug-in's own fault" in sidecar.lines.fields("assignor failed")["error"]

    run(test, assignors=assignors(gate), consumer=GATED)


def test_an_assignor_that_is_not_there_is_a_failed_run() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await (await sidecar.client()).ask(join("g", "m1"), 1)
        await until(lambda: sidecar.metrics.value("assignor_failures", "gone") == 1)
        assert "there is no assignor gone" in sidecar.lines.fields("assignor failed")["error"]

    run(test, consumer={**GATED, "assignors": ("gone", "uniform")})


def test_a_run_that_hangs_is_written_off_and_told() -> None:
    gate = Gate()

    async def test(sidecar: EmbeddedSidecar) -> None:
        await (await sidecar.client()).ask(join("g", "m1"), 1)
        await until(gate.started.is_set)
        with clock.hanging():
            hangs = "a background run hangs; another thread takes its place"
            await until(lambda: hangs in sidecar.lines.events("error"))
            assert sidecar.lines.fields(hangs)["run"] == "assignor gate"
            await until(lambda: "assignor failed" in sidecar.lines.events())
        assert sidecar.lines.fields("assignor failed")["error"] == "no result within 100 ms"
        gate.open.set()

    run(test, assignors=assignors(gate), consumer={**GATED, "assignor_timeout_ms": 100})


def test_no_timer_ends_while_a_thread_works() -> None:
    """A loaded machine runs threads late, and these tests must not see it (clock.py)."""

    async def test() -> None:
        loop, ended = asyncio.get_running_loop(), list[str]()
        loop.call_later(0.001, ended.append, "timer")
        await loop.run_in_executor(None, threading.Event().wait, 0.05)
        assert not ended
        await until(lambda: ended)

    clock.run(test())


# ---- regular expressions --------------------------------------------------------------------------------------------
def regexes(sidecar: EmbeddedSidecar) -> list[tuple[str, ...]]:
    """Returns the topics of each resolved regular expression, in the log's order."""
    return [r.topics for r, _, _ in stored(sidecar, Kind.REGEX) if isinstance(r, RegexRecord)]


def test_without_an_authorizer_nobody_is_asked() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        client = await sidecar.client()
        reply = await client.ask(join("g", "m1", topics=None, regex="(orders|pay.*)"), 1)
        assert set(assigned(reply)) == {sidecar.topic_id("orders"), sidecar.topic_id("payments")}
        assert regexes(sidecar) == [("orders", "payments")]
        assert sidecar.brokers.count(Api.LIST_OFFSETS) == 0 and front.of(AskAccess) == []

    run(test)


def test_with_an_authorizer_only_what_the_client_may_see_counts() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        bystander = RecordingFront(sidecar.coordinator)
        sidecar.brokers.no_describe.add("payments")
        client = await sidecar.client()
        reply = await client.ask(join("g", "m1", topics=None, regex="(orders|pay.*)"), 1)
        assert set(assigned(reply)) == {sidecar.topic_id("orders")}
        assert regexes(sidecar) == [("orders",)]
        (asked,) = sidecar.brokers.requests(Api.LIST_OFFSETS)
        assert [t.name for t in asked.topics] == ["orders", "payments"]
        assert bystander.of(AskAccess) == [], "only the front that asked is asked"

    run(test, authorizer=True)


def test_an_expression_that_matches_nothing_needs_no_authorizer() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        reply = await client.ask(join("g", "m1", topics=None, regex="nothing.*"), 1)
        assert assigned(reply) == {} and sidecar.brokers.count(Api.LIST_OFFSETS) == 0
        assert regexes(sidecar) == [()]

    run(test, authorizer=True)


def test_a_front_that_goes_resolves_nothing_and_the_next_member_asks_again() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        link = Loopback(asyncio.get_running_loop().call_soon)
        second = sidecar.another_front(link, lambda group_id: True)
        link.serve(sidecar.coordinator)
        hung = sidecar.brokers.faults.hang(Api.LIST_OFFSETS)
        leaving = await sidecar.client(second)
        leaving.post(join("g", "m1", topics=None, regex="orders"), 1)
        await until(lambda: hung.met)
        sidecar.coordinator.disconnect(link)
        await turns()
        assert regexes(sidecar) == [], "nobody could be asked"
        stays = await sidecar.client()
        reply = await stays.ask(join("g", "m2", topics=None, regex="orders"), 1)
        assert reply.error_code == Code.NONE and regexes(sidecar) == [("orders",)]
        assert sidecar.brokers.count(Api.LIST_OFFSETS) == 2

    run(test, authorizer=True)


def test_a_client_that_goes_while_the_broker_is_asked_resolves_nothing_either() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        hung = sidecar.brokers.faults.hang(Api.LIST_OFFSETS)
        leaving = await sidecar.client()
        leaving.post(join("g", "m1", topics=None, regex="orders"), 1)
        await until(lambda: hung.met)
        leaving.close()
        await turns()
        assert regexes(sidecar) == []
        reply = await (await sidecar.client()).ask(join("g", "m2", topics=None, regex="orders"), 1)
        assert reply.error_code == Code.NONE and regexes(sidecar) == [("orders",)]

    run(test, authorizer=True)


def test_a_resolution_that_breaks_is_told_and_resolves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(regexes: object, names: object, limit_s: float, cpu_s: object) -> dict[str, tuple[str, ...]]:
        raise RuntimeError("no regular expression today")

    monkeypatch.setattr(regex_task, "resolve", breaks)

    async def test(sidecar: EmbeddedSidecar) -> None:
        reply = await (await sidecar.client()).ask(join("g", "m1", topics=None, regex="orders"), 1)
        assert reply.error_code == Code.NONE and assigned(reply) == {}
        assert "regular expressions were not resolved" in sidecar.lines.events("error")

    run(test)


def test_a_group_whose_run_was_cut_rests_before_its_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[float, tuple[str, ...]]] = []

    def cut(regexes: tuple[str, ...], names: object, limit_s: float, cpu_s: object) -> dict[str, tuple[str, ...]]:
        runs.append((limit_s, tuple(regexes)))
        return {} if len(runs) == 1 else dict.fromkeys(regexes, ("orders",))

    monkeypatch.setattr(regex_task, "resolve", cut)

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        reply = await client.ask(join("g", "m1", topics=None, regex="ord.*"), 1)
        assert assigned(reply) == {} and sidecar.metrics.value("regex_cut") == 1
        began_s = asyncio.get_running_loop().time()
        client.post(beat("g", "m1", reply.member_epoch), 1)
        await until(lambda: len(runs) == 2)
        assert asyncio.get_running_loop().time() - began_s >= regex_task.RESTS * runs[0][0] * 0.9
        assert [r for _, r in runs] == [("ord.*",)] * 2

    run(test)
