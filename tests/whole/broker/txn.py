"""The coordinators of transactions at one broker. Source: TransactionCoordinator, TransactionStateManager,
TransactionMetadata, with transaction.version 2 (KIP-890), which clusters of 4.3 are made with.

A change of a transactional id is in force when its record is committed; until then it is pending, and others are told
CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from tests.whole.broker.batches import Batch, of_records
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.groups import OFFSETS, partition_for
from tests.whole.broker.replica import Replica
from tests.whole.broker.shard import Shard

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

TRANSACTIONS = "__transaction_state"
LAST_EPOCH = 0x7FFF - 1
MARKER_AGAIN_MS = 100
Place = tuple[str, int]
Told = Callable[[Err, int, int], None]
"""A code, a producer id and its epoch."""
ON_WRITE = {
    Err.UNKNOWN_TOPIC_OR_PARTITION: Err.COORDINATOR_NOT_AVAILABLE,
    Err.NOT_ENOUGH_REPLICAS: Err.COORDINATOR_NOT_AVAILABLE,
    Err.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Err.COORDINATOR_NOT_AVAILABLE,
    Err.REQUEST_TIMED_OUT: Err.COORDINATOR_NOT_AVAILABLE,
    Err.NOT_LEADER_OR_FOLLOWER: Err.NOT_COORDINATOR,
    Err.KAFKA_STORAGE_ERROR: Err.NOT_COORDINATOR,
    Err.MESSAGE_TOO_LARGE: Err.UNKNOWN_SERVER_ERROR,
}


class State(StrEnum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    FENCING = "PrepareEpochFence"


PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


@dataclass(frozen=True, slots=True)
class Txn:
    """A transactional id. `bumps`: its client bumps the epoch with each transaction (KIP-890)."""

    txn_id: str
    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    previous_id: int = -1
    next_id: int = -1
    timeout_ms: int = 60_000
    state: State = State.EMPTY
    places: frozenset[Place] = frozenset()
    start_ms: int = -1
    update_ms: int = 0
    bumps: bool = False

    @property
    def exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH


class TxnShard(Shard):
    """One partition of `__transaction_state` at its leader."""

    def __init__(self, node: Node, replica: Replica) -> None:
        super().__init__(node, replica)
        self.txns: dict[str, Txn] = {}
        self.pending: dict[str, State] = {}
        self.failed_fence: set[str] = set()

    def replay(self, batch: Batch) -> None:
        for r in batch.records:
            match r.key:
                case ("txn", str(txn_id)):
                    if r.value is None:
                        self.txns.pop(txn_id, None)
                    else:
                        self.txns[txn_id] = r.value

    def begin(self) -> None:
        for t in list(self.txns.values()):
            if t.state in PREPARED:
                self.pending[t.txn_id] = self._completed(t).state
                self.send_markers(t)
        self._look_after()

    def _look_after(self) -> None:
        """Transactions that take too long are aborted, ids that were not used for long are forgotten."""
        interval_ms = self.node.settings.number("transaction.abort.timed.out.transaction.cleanup.interval.ms")

        def look() -> None:
            now_ms = self.node.host.wall_ms()
            kept_ms = self.node.settings.number("transactional.id.expiration.ms")
            for t in [t for t in self.txns.values() if t.txn_id not in self.pending]:
                if t.state is State.ONGOING and t.start_ms + t.timeout_ms < now_ms:
                    self.node.cluster.timed_out.add((t.producer_id, t.epoch))
                    self.fence(t, lambda code, i, e: None)
                elif t.state not in (State.ONGOING, *PREPARED) and t.update_ms + kept_ms <= now_ms:
                    self._forget(t)
            self._look_after()

        self.timer("times", interval_ms, look)

    def _forget(self, t: Txn) -> None:
        self.pending[t.txn_id] = t.state

        def done(code: Err) -> None:
            self.pending.pop(t.txn_id, None)
            if code == Err.NONE:
                self.txns.pop(t.txn_id, None)

        self._append(t.txn_id, None, 60_000, done)

    # ---- the log --------------------------------------------------------------------------------------------
    def _append(self, txn_id: str, value: Txn | None, timeout_ms: int, done: Callable[[Err], None]) -> None:
        code = self.node.append_code(None if self.closed else self.replica)
        if code == Err.NONE:
            batch = of_records([(("txn", txn_id), value)], self.node.host.wall_ms())
            self.replica.append(batch, timeout_ms, 1, done)
        else:
            done(code)

    def change(self, to: Txn, done: Callable[[Err], None]) -> None:
        """In force when it is committed."""
        self.pending[to.txn_id] = to.state

        def stored(code: Err) -> None:
            if self.closed:
                done(Err.NOT_COORDINATOR)
                return
            self.pending.pop(to.txn_id, None)
            if code == Err.NONE:
                self.txns[to.txn_id] = to
            done(ON_WRITE.get(code, code))

        self._append(to.txn_id, to, to.timeout_ms, stored)

    # ---- producer ids ---------------------------------------------------------------------------------------
    def init(self, txn_id: str, timeout_ms: int, expected: tuple[int, int] | None, told: Told) -> None:
        """`expected`: producer id and epoch, if the producer says which it had. Raises Refused."""
        t = self.txns.get(txn_id)
        if t is None:
            made = Txn(txn_id, self.node.new_producer_id(), timeout_ms=timeout_ms, update_ms=self._now_ms())
            t = self.txns.setdefault(txn_id, made)
        if txn_id in self.pending:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        if expected is not None and not self._is_valid(t, *expected):
            raise Refused(Err.PRODUCER_FENCED)
        if t.state in PREPARED:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        if t.state is State.ONGOING:

            def fenced(code: Err, producer_id: int, epoch: int) -> None:
                told(Err.CONCURRENT_TRANSACTIONS if code == Err.NONE else code, -1, -1)

            self.fence(t, fenced)
            return
        to = self._next(t, timeout_ms, expected)
        self.change(to, lambda code: told(code, *((to.producer_id, to.epoch) if code == Err.NONE else (-1, -1))))

    def _now_ms(self) -> int:
        return self.node.host.wall_ms()

    @staticmethod
    def _is_valid(t: Txn, producer_id: int, epoch: int) -> bool:
        return t.epoch == -1 or producer_id == t.producer_id or (producer_id == t.previous_id and epoch >= LAST_EPOCH)

    def _next(self, t: Txn, timeout_ms: int, expected: tuple[int, int] | None) -> Txn:
        fresh = replace(
            t, state=State.EMPTY, timeout_ms=timeout_ms, places=frozenset(), start_ms=-1, update_ms=self._now_ms(),
            previous_id=t.producer_id, next_id=-1,
        )  # fmt: skip
        if t.exhausted and (expected is None or expected[1] == t.epoch):
            last = t.epoch if expected is not None else -1
            return replace(fresh, producer_id=self.node.new_producer_id(), epoch=0, last_epoch=last)
        if expected is None:
            return replace(fresh, epoch=t.epoch + 1, last_epoch=-1)
        if t.epoch == -1 or expected[1] == t.epoch:
            return replace(fresh, epoch=t.epoch + 1, last_epoch=t.epoch)
        if expected[1] == t.last_epoch:
            return fresh
        raise Refused(Err.PRODUCER_FENCED)

    def fence(self, t: Txn, told: Told) -> None:
        """Abort what a former producer has open, under a new epoch."""
        self.pending[t.txn_id] = State.FENCING
        keep = t.txn_id in self.failed_fence or t.epoch == 0x7FFF
        self.end(t.txn_id, t.producer_id, t.epoch if keep else t.epoch + 1, False, True, told, from_client=False)

    # ---- transactions ---------------------------------------------------------------------------------------
    def _known(self, txn_id: str, producer_id: int) -> Txn:
        t = self.txns.get(txn_id)
        if t is None or t.producer_id != producer_id:
            raise Refused(Err.INVALID_PRODUCER_ID_MAPPING)
        return t

    def add(
        self,
        txn_id: str,
        producer_id: int,
        epoch: int,
        places: frozenset[Place],
        bumps: bool,
        done: Callable[[Err], None],
    ) -> None:
        """Partitions to a transaction, which begins with the first. Raises Refused."""
        if txn_id not in self.txns:
            raise Refused(Err.INVALID_PRODUCER_ID_MAPPING)
        if txn_id in self.pending:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        t = self._known(txn_id, producer_id)
        if t.epoch != epoch:
            raise Refused(Err.PRODUCER_FENCED)
        if t.state in PREPARED:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        if t.state is State.ONGOING and places <= t.places:
            done(Err.NONE)
            return
        now_ms = self._now_ms()
        start_ms = t.start_ms if t.state is State.ONGOING else now_ms
        self.change(
            replace(t, state=State.ONGOING, places=t.places | places, start_ms=start_ms, update_ms=now_ms, bumps=bumps,
                    previous_id=t.producer_id),
            done,
        )  # fmt: skip

    def verify(self, txn_id: str, producer_id: int, epoch: int, place: Place) -> Err:
        """Whether this partition is in the transaction. Raises Refused."""
        t = self._known(txn_id, producer_id)
        if t.epoch != epoch:
            raise Refused(Err.PRODUCER_FENCED)
        if t.state in PREPARED:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        return Err.NONE if place in t.places else Err.TRANSACTION_ABORTABLE

    def end(
        self, txn_id: str, producer_id: int, epoch: int, commit: bool, bumps: bool, told: Told, from_client: bool = True
    ) -> None:
        """Commit or abort. `bumps`: by a client that knows KIP-890. Raises Refused."""
        t = self.txns.get(txn_id)
        if t is None:
            raise Refused(Err.INVALID_PRODUCER_ID_MAPPING)
        fencing = self.pending.get(txn_id) is State.FENCING
        if bumps:
            if self._check_bumping(t, producer_id, epoch, commit, fencing, from_client):
                told(Err.NONE, t.producer_id, t.epoch)
                return
        elif self._check_end(t, producer_id, epoch, commit, from_client):
            told(Err.NONE, -1, -1)
            return
        next_id = self.node.new_producer_id() if bumps and t.exhausted else -1
        began = t.state is State.ONGOING
        to = replace(
            t, state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, next_id=next_id, bumps=bumps,
            update_ms=self._now_ms(), start_ms=t.start_ms if began else self._now_ms(), previous_id=t.producer_id,
        )  # fmt: skip
        if bumps:
            to = replace(to, epoch=min(t.epoch + 1, 0x7FFF), last_epoch=t.epoch)

        def stored(code: Err) -> None:
            if code != Err.NONE:
                if fencing:
                    self.failed_fence.add(txn_id)
                told(code, -1, -1)
                return
            after = self._completed(to)
            self.pending[txn_id] = after.state
            told(Err.NONE, *((after.producer_id, after.epoch) if bumps else (-1, -1)))
            self.send_markers(to)

        self.change(to, stored)

    def _check_bumping(
        self, t: Txn, producer_id: int, epoch: int, commit: bool, fencing: bool, from_client: bool
    ) -> bool:
        """Whether nothing is to be done, as this is a repetition. Raises Refused."""
        overflow = not fencing and t.previous_id == producer_id and epoch == LAST_EPOCH and t.epoch == 0
        bumped = not fencing and t.epoch == epoch + 1
        if fencing:
            valid = (not from_client or epoch == t.epoch) and epoch >= t.epoch
        elif t.state in PREPARED:
            valid = bumped
        elif t.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
            valid = bumped or overflow or epoch == t.epoch
        else:
            valid = epoch == t.epoch
        if t.txn_id in self.pending and not fencing:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        if t.producer_id != producer_id and not overflow:
            raise Refused(Err.INVALID_PRODUCER_ID_MAPPING)
        if not valid:
            raise Refused(Err.PRODUCER_FENCED)
        again = bumped or overflow
        if t.state in PREPARED:
            same = (t.state is State.PREPARE_COMMIT) == commit
            raise Refused(Err.CONCURRENT_TRANSACTIONS if same else Err.INVALID_TXN_STATE)
        if t.state is State.COMPLETE_COMMIT:
            if commit is not again:
                raise Refused(Err.INVALID_TXN_STATE)
            return again
        if t.state is State.COMPLETE_ABORT:
            if commit:
                raise Refused(Err.INVALID_TXN_STATE)
            return again
        if t.state is State.EMPTY and commit:
            raise Refused(Err.INVALID_TXN_STATE)
        return False

    def _check_end(self, t: Txn, producer_id: int, epoch: int, commit: bool, from_client: bool) -> bool:
        if t.producer_id != producer_id:
            raise Refused(Err.INVALID_PRODUCER_ID_MAPPING)
        if (from_client and epoch != t.epoch) or epoch < t.epoch:
            raise Refused(Err.PRODUCER_FENCED)
        if t.txn_id in self.pending:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        if t.state is State.ONGOING:
            return False
        if t.state is State.EMPTY:
            raise Refused(Err.INVALID_TXN_STATE)
        same = (t.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)) == commit
        if not same:
            raise Refused(Err.INVALID_TXN_STATE)
        if t.state in PREPARED:
            raise Refused(Err.CONCURRENT_TRANSACTIONS)
        return True

    # ---- markers --------------------------------------------------------------------------------------------
    def _completed(self, t: Txn) -> Txn:
        state = State.COMPLETE_COMMIT if t.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        done = replace(
            t, state=state, places=frozenset(), update_ms=self._now_ms(), next_id=-1, previous_id=t.producer_id
        )
        if t.bumps and t.next_id >= 0:
            return replace(done, producer_id=t.next_id, epoch=0)
        return done

    def send_markers(self, t: Txn) -> None:
        """To every partition of the transaction, until each has written it; then the transaction is complete."""
        left = set(t.places)
        marker = "commit" if t.state is State.PREPARE_COMMIT else "abort"

        def written(place: Place, code: Err) -> None:
            if self.closed or place not in left:
                return
            if code == Err.NONE:
                left.discard(place)
                if not left:
                    self._complete(t)
            else:
                self.node.later(MARKER_AGAIN_MS, lambda: send(place))

        def send(place: Place) -> None:
            if not self.closed and place in left:
                self.node.txns.send_marker(place, (t.producer_id, t.epoch), marker, lambda code: written(place, code))

        for place in sorted(left):
            send(place)
        if not left:
            self._complete(t)

    def _complete(self, t: Txn) -> None:
        def stored(code: Err) -> None:
            if code != Err.NONE and not self.closed:
                self.pending[t.txn_id] = self._completed(t).state
                self.node.later(MARKER_AGAIN_MS, lambda: self._complete(t))
            else:
                self.failed_fence.discard(t.txn_id)

        if not self.closed:
            self.change(self._completed(t), stored)


class TxnCoordinator:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.shards: dict[int, TxnShard] = {}

    def partition(self, txn_id: str) -> int:
        return partition_for(txn_id, self.node.settings.number("transaction.state.log.num.partitions"))

    def shard(self, txn_id: str) -> TxnShard:
        """Raises Refused."""
        found = self.shards.get(self.partition(txn_id))
        if found is None:
            raise Refused(Err.NOT_COORDINATOR)
        found.check()
        return found

    def image_changed(self) -> None:
        known = self.node.image.topics.get(TRANSACTIONS)
        count = len(known.partitions) if known is not None else 0
        for index in range(max([count, *(i + 1 for i in self.shards)], default=0)):
            replica = self.node.replica(TRANSACTIONS, index)
            shard = self.shards.get(index)
            if shard is not None and (replica is None or replica.state.leader_epoch != shard.epoch):
                shard.close()
                del self.shards[index]
                shard = None
            if replica is not None and shard is None:
                shard = self.shards[index] = TxnShard(self.node, replica)
                shard.open(shard.begin)

    # ---- between brokers --------------------------------------------------------------------------------------
    def send_marker(self, place: Place, producer: tuple[int, int], marker: str, done: Callable[[Err], None]) -> None:
        """WriteTxnMarkers to the leader of the partition. An answer that does not come counts as an error."""
        known = self.node.image.partition(*place)
        if known is None:
            done(Err.NONE)  # the topic was deleted
            return
        answered = [False]

        def answer(code: Err) -> None:
            if not answered[0]:
                answered[0] = True
                done(code)

        me = self.node.node_id

        def there(node: Node) -> None:
            node.txns.write_marker(place, producer, marker, lambda code: node.tell(me, lambda _: answer(code)))

        if known.leader >= 0:
            self.node.tell(known.leader, there)
        self.node.later(2_000, lambda: answer(Err.REQUEST_TIMED_OUT))

    def write_marker(self, place: Place, producer: tuple[int, int], marker: str, done: Callable[[Err], None]) -> None:
        replica = self.node.replica(*place)
        code = self.node.append_code(replica)
        if code != Err.NONE or replica is None:
            done(code)
            return
        if place[0] == OFFSETS:
            shard = self.node.groups.shards.get(place[1])
            if shard is None or not shard.active:
                done(Err.NOT_LEADER_OR_FOLLOWER)
                return
            shard.write((), done, producer, marker)
            return
        batch = Batch(0, 0, -1, (), self.node.host.wall_ms(), *producer, -1, True, marker)
        replica.append(batch, 30_000, 1, done)

    def join_transaction(
        self, txn_id: str, producer: tuple[int, int], place: Place, bumps: bool, done: Callable[[Err], None]
    ) -> None:
        """Before offsets are appended for a transaction: its coordinator must know the partition, or take it in
        (KIP-890). Here the coordinator is asked at another broker."""
        known = self.node.image.partition(TRANSACTIONS, self.partition(txn_id))
        if known is None or known.leader < 0:
            done(Err.COORDINATOR_NOT_AVAILABLE)
            return
        answered = [False]
        me = self.node.node_id

        def answer(code: Err) -> None:
            if not answered[0]:
                answered[0] = True
                done(code)

        def there(node: Node) -> None:
            def back(code: Err) -> None:
                node.tell(me, lambda _: answer(code))

            try:
                shard = node.txns.shard(txn_id)
                if bumps:
                    shard.add(txn_id, *producer, frozenset((place,)), True, back)
                else:
                    back(shard.verify(txn_id, *producer, place))
            except Refused as exc:
                back(exc.code)

        self.node.tell(known.leader, there)
        self.node.later(5_000, lambda: answer(Err.COORDINATOR_LOAD_IN_PROGRESS))
