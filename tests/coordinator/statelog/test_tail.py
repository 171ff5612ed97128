"""The tail keeps positions, waiters and last values of the state topic, and reports what it cannot read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from sidecar.coordinator.statelog import tail as module
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.consumer.records import GroupRecord, Kind, MemberRecord
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.state.codec import CONFIG, SCHEMA, Encoded, Stamp, StateCodec
from sidecar.state.keys import StateKey, decode_key, encode_key
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, turns, until
from tests.inprocess.tail import FedTail, Polled

OWNER, LATER = 7 << 16, 7 << 16 | 1


class Bench:
    """A log of two partitions and the tail that fills it."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.metrics = Counted()
        self.codec = StateCodec()
        self.log = StateLog(2, self.codec, self.lines, self.metrics)
        self.tail = FedTail("__group_state", self.log, self)
        self.trouble: list[str] = []
        self.read_to_end: list[int] = []
        self.claims_read: list[int] = []
        self.stored: list[str] = []
        self.went_back: list[int] = []
        self.next = [0, 0]

    def put(self, record: Encoded, partition: int = 0) -> int:
        """The tail reads this record; returns its offset."""
        offset = self.next[partition]
        self.next[partition] += 1
        self.tail.feed([Polled(partition, offset, record.key, record.value, headers=record.headers)])
        return offset

    def write(self, record: Record, owner: int = OWNER, revision: int = 1, partition: int = 0) -> int:
        return self.put(self.codec.encode(record, Stamp(owner, 1), revision), partition)

    def claim(self, owner: int) -> int:
        return self.put(self.codec.claim(Stamp(owner, 1), 1, "h:1", "m", 1, "assigned"))

    # ---- the tail's listener ----
    def claim_read(self, partition: int) -> None:
        self.claims_read.append(partition)

    def tail_read(self, partition: int) -> None:
        self.read_to_end.append(partition)

    def setting_stored(self, group_id: str, name: str) -> None:
        self.stored.append(group_id)

    def tail_trouble(self, text: str) -> None:
        self.trouble.append(text)

    def tail_went_back(self, partition: int) -> None:
        self.went_back.append(partition)

    def tail_broke(self, exc: BaseException) -> None:
        raise exc


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Bench())

    clock.run(main())


def group(epoch: int, group_id: str = "g") -> GroupRecord:
    return GroupRecord(group_id, epoch, 0)


def item(b: Bench, offset: int, record: Record) -> module.Item:
    """Returns an item as the tail's thread hands it over."""
    encoded = b.codec.encode(record, Stamp(OWNER, 1), 1)
    return (0, offset, decode_key(encoded.key), encoded.value, -1)


def member(name: str) -> MemberRecord:
    return MemberRecord("g", name, None, None, "app", "/h", 1_000, ("orders",), None, None)


# ---- positions ------------------------------------------------------------------------------------------------------
def test_waiting_ends_when_the_record_at_that_offset_was_applied() -> None:
    async def test(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        first, second = (loop.create_task(b.log.wait_applied(0, offset)) for offset in (0, 1))
        other = loop.create_task(b.log.wait_applied(1, 0))
        b.write(group(1))
        await turns(5)
        assert first.done() and not second.done() and not other.done()
        b.write(group(2))
        await turns(5)
        assert second.done() and not other.done()
        await b.log.wait_applied(0, 1)  # what is there already is not waited for
        b.write(group(1), partition=1)
        await asyncio.wait_for(other, 1)

    run(test)


def test_a_waiter_that_has_given_up_hinders_nobody() -> None:
    async def test(b: Bench) -> None:
        loop = asyncio.get_running_loop()
        gone, stays = (loop.create_task(b.log.wait_applied(0, 0)) for _ in range(2))
        await turns(2)
        gone.cancel()
        await turns(2)
        assert len(b.log._waiters[0]) == 1, "nothing is kept of it"
        b.write(group(1))
        await asyncio.wait_for(stays, 1)
        assert gone.cancelled()

    run(test)


def test_gaps_in_the_offsets_are_passed_over() -> None:
    async def test(b: Bench) -> None:
        waiting = asyncio.get_running_loop().create_task(b.log.wait_applied(0, 5))
        b.next[0] = 9
        b.write(group(1))
        await asyncio.wait_for(waiting, 1)
        assert b.log.partitions[0].position == 10

    run(test)


# ---- what was read ahead of the tail --------------------------------------------------------------------------------
def test_whoever_waits_long_is_helped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.01)

    async def test(b: Bench) -> None:
        told: list[tuple[int, int]] = []
        b.log.late = lambda partition, offset: told.append((partition, offset))
        waiting = asyncio.get_running_loop().create_task(b.log.wait_applied(0, 1))
        await until(lambda: told)
        b.tail._apply_early([item(b, 0, group(1)), item(b, 1, group(2))])
        await asyncio.wait_for(waiting, 1)
        assert told == [(0, 1)] and list(b.log.records(0, "g")) == [group(2)]
        b.write(group(1))
        b.write(group(2))
        b.write(group(3))
        await turns(5)
        assert list(b.log.records(0, "g")) == [group(3)] and b.log.partitions[0].records == 3
        assert b.went_back == [] and not any(b.log.applied_early)

    run(test)


def test_what_the_tail_had_already_is_not_applied_again() -> None:
    async def test(b: Bench) -> None:
        b.write(group(1))
        b.write(group(2))
        await turns(5)
        b.tail._apply_early([item(b, 1, group(2)), item(b, 2, group(3))])
        assert list(b.log.records(0, "g")) == [group(3)] and b.log.partitions[0].records == 3

    run(test)


def test_what_was_written_right_behind_all_that_was_read_need_not_be_read() -> None:
    """Symptom: each takeover waited 10 to 150 ms for its own claim to come back."""

    async def test(b: Bench) -> None:
        b.write(group(1))
        await turns(5)
        claim = b.codec.claim(Stamp(LATER, 1), 1, "h:1", "m", 1, "assigned")
        b.log.wrote(0, 1, [claim])
        await asyncio.wait_for(b.log.wait_applied(0, 1), 1)
        fold = b.log.partitions[0]
        assert (fold.owners.claimed, fold.position) == (LATER, 2)
        b.put(claim)
        b.write(group(2), owner=LATER)
        await turns(5)
        assert (fold.position, b.went_back) == (3, []) and b.log.applied_early[0] == {}

    run(test)


@pytest.mark.parametrize("read", [0, 2], ids=["not all before it", "the claim itself"])
def test_what_was_written_elsewhere_changes_nothing(read: int) -> None:
    async def test(b: Bench) -> None:
        claim = b.codec.claim(Stamp(LATER, 1), 1, "h:1", "m", 1, "assigned")
        for record in (b.codec.claim(Stamp(OWNER, 1), 1, "h:1", "m", 1, "assigned"), claim)[:read]:
            b.put(record)
        await turns(5)
        b.log.wrote(0, 1, [claim])
        assert b.log.partitions[0].position == read and b.log.applied_early[0] == {}

    run(test)


@pytest.mark.parametrize("offset", [0, 1])
def test_another_record_than_was_read_ahead_means_that_the_log_has_lost_some(offset: int) -> None:
    async def test(b: Bench) -> None:
        b.write(group(1))
        await turns(5)
        b.tail._apply_early([item(b, 1, group(2)), item(b, 2, group(3))])
        b.next[0] = offset
        b.write(group(9))
        await turns(5)
        assert b.went_back == [0] and list(b.log.records(0, "g")) == [group(3)]

    run(test)


# ---- values ---------------------------------------------------------------------------------------------------------
def test_the_last_value_of_each_key_counts_and_its_revision_is_kept() -> None:
    async def test(b: Bench) -> None:
        b.write(group(1))
        b.write(member("m1"), revision=4)
        b.write(member("m2"))
        b.write(group(2), revision=2)
        b.write(Tombstone(Kind.MEMBER, "g", "m2"))
        await turns(5)
        assert list(b.log.groups(0)) == ["g"] and list(b.log.groups(1)) == []
        assert list(b.log.records(0, "g")) == [group(2), member("m1")]
        assert b.log.revisions[0] == {("group", "g", ""): 2, ("member", "g", "m1"): 4}
        assert list(b.log.records(0, "nobody")) == []

    run(test)


def test_a_group_without_records_is_forgotten() -> None:
    async def test(b: Bench) -> None:
        b.write(group(1))
        b.write(Tombstone(Kind.GROUP, "g", ""))
        b.write(Tombstone(Kind.GROUP, "never", ""))
        await turns(5)
        assert list(b.log.groups(0)) == []

    run(test)


def test_a_record_of_an_owner_before_the_last_claim_is_void_and_counted() -> None:
    async def test(b: Bench) -> None:
        b.claim(OWNER)
        b.write(group(1))
        b.claim(LATER)
        b.write(group(9), owner=OWNER)
        b.write(member("m1"), owner=LATER)
        await turns(5)
        assert list(b.log.records(0, "g")) == [group(1), member("m1")]
        fold = b.log.partitions[0]
        assert (fold.owners.claimed, fold.owners.void, fold.records, fold.position) == (LATER, 1, 5, 5)
        assert sorted(int(c) for c in fold.claims) == [OWNER, LATER]

    run(test)


def test_claims_that_were_removed_are_forgotten_but_the_highest_still_counts() -> None:
    async def test(b: Bench) -> None:
        offset = b.claim(LATER)
        key = encode_key("owner_claim", "", f"{LATER:020d}")
        b.put(Encoded(key, None))
        b.write(group(1), owner=OWNER)
        await turns(5)
        fold = b.log.partitions[0]
        assert fold.claims == {} and fold.owners.void == 1 and fold.position == offset + 3

    run(test)


def test_the_last_claim_counts_and_not_the_highest() -> None:
    """A transactional id that the brokers have forgotten gets another producer id, which may be lower."""

    async def test(b: Bench) -> None:
        b.claim(LATER)
        b.write(group(1), owner=LATER)
        b.claim(OWNER)
        b.write(member("m1"), owner=OWNER)
        b.write(group(9), owner=LATER)
        await turns(5)
        assert list(b.log.records(0, "g")) == [group(1), member("m1")]
        owners = b.log.partitions[0].owners
        assert (owners.before, owners.claimed, owners.void) == (LATER, OWNER, 1)

    run(test)


@pytest.mark.parametrize(("owner", "there"), [(OWNER, ["g"]), (LATER, [])])
def test_a_tombstone_of_an_owner_before_the_last_claim_is_void_and_counted(owner: int, there: list[str]) -> None:
    async def test(b: Bench) -> None:
        b.claim(OWNER)
        b.write(group(1))
        b.claim(LATER)
        b.write(Tombstone(Kind.GROUP, "g", ""), owner=owner)
        await turns(5)
        assert list(b.log.groups(0)) == there and b.log.partitions[0].owners.void == len(there)

    run(test)


def test_a_schema_in_the_topic_is_learned() -> None:
    async def test(b: Bench) -> None:
        text = '{"type": "record", "name": "Newer", "fields": [{"name": "epoch", "type": "long"}]}'
        fingerprint = StateCodec().schemas.learn(text).hex()
        assert fingerprint not in b.codec.schemas.texts
        b.put(Encoded(encode_key(SCHEMA, "", fingerprint), text.encode()))
        await turns(5)
        assert fingerprint in b.codec.schemas.texts and b.log.partitions[0].schemas == {fingerprint}

    run(test)


def test_settings_are_kept_by_group_and_told_when_they_come() -> None:
    async def test(b: Bench) -> None:
        b.put(b.codec.config("g", "x", "1", 1, 1, "changed"))
        b.put(b.codec.config("", "1/y", "2", 1, 1, "changed"))
        await turns(5)
        assert set(b.log.partitions[0].configs) == {"g", ""} and b.stored == ["g", ""]
        b.put(Encoded(encode_key(CONFIG, "g", "x"), None))
        await turns(5)
        assert set(b.log.partitions[0].configs) == {""} and b.stored == ["g", "", "g"]

    run(test)


# ---- the thread -----------------------------------------------------------------------------------------------------
def test_the_thread_does_not_run_ahead_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that starts reads the topic faster than it applies it, and its clients wait."""
    polled: list[int] = []

    class Endless:
        def __init__(self, config: dict[str, Any]) -> None:
            self.offset = 0

        def assign(self, partitions: list[Any]) -> None: ...

        def close(self) -> None: ...

        def poll(self, seconds: float) -> Polled:
            polled.append(self.offset)
            self.offset += 1
            return Polled(0, self.offset - 1, encode_key("group", "g", ""), b"x")

        def consume(self, count: int, seconds: float) -> list[Polled]:
            return []

        def get_watermark_offsets(self, partition: TopicPartition, cached: bool) -> tuple[int, int]:
            assert cached and threading.current_thread().name == "state-tail", "from elsewhere it would block"
            return 0, 1_000_000

    monkeypatch.setattr(module, "Consumer", Endless)

    async def test(b: Bench) -> None:
        tail = module.Tail("nowhere:1", "__group_state", "c", b.log, b)
        time.sleep(0.2)  # noqa: ASYNC251 - the loop is busy with something else
        ahead = len(polled)
        assert ahead <= module.UNTAKEN_SLICES + 2
        await until(lambda: b.log.partitions[0].position > 50)
        assert 0 < b.log.behind() < 1_000_000 * len(b.log.partitions)
        tail.stop()

    async def main() -> None:
        await test(Bench())

    asyncio.run(main())  # a thread is no event of virtual time


# ---- what cannot be read --------------------------------------------------------------------------------------------
def test_a_damaged_key_is_told_and_passed_over() -> None:
    async def test(b: Bench) -> None:
        b.tail.feed([Polled(0, 0, b"\xff\xff", b"x"), Polled(0, 1, None, b"x")])
        b.next[0] = 2
        b.write(group(1))
        await b.log.wait_applied(0, 2)
        assert b.trouble == ["__group_state-0@0: damaged key", "__group_state-0@1: damaged key"]
        assert list(b.log.records(0, "g")) == [group(1)]

    run(test)


def cut(value: bytes) -> bytes:
    return value[:-3]


def of_an_unknown_schema(value: bytes) -> bytes:
    return value[:2] + b"unknown!" + value[10:]


@pytest.mark.parametrize(
    ("kind", "damage", "why"),
    [
        ("member", cut, "damaged value"),
        ("member", lambda value: b"no Avro at all, but long enough", "not in Avro single-object encoding"),
        ("member", of_an_unknown_schema, "unknown schema"),
        ("from_a_newer_version", lambda value: value, "no kind of record"),
    ],
)
def test_of_a_group_with_a_record_that_cannot_be_read_nothing_is_told(
    kind: str, damage: Callable[[bytes], bytes], why: str
) -> None:
    """Left out, the record would make what it gives to somebody look free (S5 of the safety review)."""

    async def test(b: Bench) -> None:
        b.claim(OWNER)
        b.write(group(1))
        whole = b.codec.encode(member("m1"), Stamp(OWNER, 1), 1)
        assert whole.value is not None
        b.put(Encoded(encode_key(kind, "g", "m1"), damage(whole.value)))
        await turns(5)
        with pytest.raises(InvariantError, match=why):
            list(b.log.records(0, "g"))
        assert b.log.partitions[0].owners.void == 0

    run(test)


def test_errors_of_the_consumer_are_told_but_for_the_end_of_a_partition() -> None:
    async def test(b: Bench) -> None:
        for code in (KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN):
            b.tail.feed([Polled(0, 3, None, None, KafkaError(code))])
        await turns(5)
        assert len(b.trouble) == 1 and "brokers" in b.trouble[0].lower()
        assert b.log.partitions[0].position == 0

    run(test)


def test_a_key_is_three_strings() -> None:
    assert decode_key(encode_key("member", "g", "m1")) == StateKey("member", "g", "m1")


def test_a_record_that_should_have_come_before_is_told_and_not_applied() -> None:
    """The log was truncated, or is another one: the broker's client begins again at its start."""

    async def test() -> None:
        bench = Bench()
        for _ in range(3):
            bench.claim(OWNER)
        await turns()
        bench.next[0] = 1
        before = bench.log.partitions[0].records
        bench.claim(OWNER + 1)
        await turns()
        assert bench.went_back == [0] and bench.log.partitions[0].records == before

    clock.run(test())
