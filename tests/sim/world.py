"""The world of the simulation: the clock, the log, the network, the faults, the settings of this seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from sidecar.assign import BUILT_IN
from sidecar.assign.spec import Assignor, GroupSpec
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.vocabulary.placement import partition_for
from sidecar.core.vocabulary.topics import Topic
from tests.harness.endings import Endings
from tests.sim.log import Log, Scheduler

PARTITIONS = 2
GROUPS = ("g", "h", "i")
"""The first and the last share a partition."""
MODES = ("consumer", "classic", "mixed")
"""The protocols that the members of a group speak."""
SESSION_MS = 6_000
REBALANCE_MS = 8_000
"""The longest rebalance timeout of a member of the classic protocol."""
TOPIC_IDS = {"t1": (2).to_bytes(16, "big"), "t2": (3).to_bytes(16, "big")}
"""Topics that keep their ids for a whole run. Members of the classic protocol subscribe to these."""
LEASE_MS = 3_000
"""The brokers give the partitions of a sidecar away half a second after this at the earliest."""
TICK_MS = 100
LOST_MS = 2_000
"""After this long without an acknowledgement a writer gives a batch up."""
FOR_EVER_MS = 10**12


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Faults:
    """Probabilities, while faults are on."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0
    append_fails: float = 0.0
    append_lost: float = 0.0
    """Share of appends that are in the log, but whose answer is lost."""
    assignor_fails: float = 0.0
    hangs_up: float = 0.0
    """A client's connection breaks with a request under way, and the client says it again on another."""
    stalls: float = 0.0
    """A sidecar stands still in the middle of a takeover."""
    breaks: float = 0.0
    """A turn raises an exception that nobody expects, before or after it has written records."""
    on: bool = True


def flaky(spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
    return BUILT_IN["uniform"](spec)


class World:
    def __init__(self, seed: int) -> None:
        self.sched = Scheduler(seed)
        self.rng = self.sched.rng
        self.faults = Faults()
        self.config = ConsumerConfig(
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=1_000, regex_min_interval_ms=500
        )
        self.classic = ClassicConfig()
        self.modes = {group_id: self.rng.choice(MODES) for group_id in GROUPS}
        # Members of the classic protocol wait for each other: too few requests at a time would let no group join.
        few = 3 if set(self.modes.values()) == {"consumer"} else 100_000
        self.service = ServiceSettings(
            hold_ms=self.rng.choice((0, 300, 3_000)),
            parked_max=self.rng.choice((100_000, 100_000, few)),
            fence_interval_ms=self.rng.choice((3_600_000, 3_600_000, 10_000)),
            load_at_once=(32, 1)[seed % 2],
        )
        self.assignors: dict[str, Assignor] = {**BUILT_IN, "flaky": flaky}
        self.asks_access = False
        self.link_ms = 0
        """From a front to its coordinator and back. 0: they are one process, and stand still together."""
        self.on_append: Callable[[Log, Record, int], None] = lambda log, record, epoch: None
        self.on_batch: Callable[[], None] = lambda: None
        self.logs = [
            Log(lambda log, record, epoch: self.on_append(log, record, epoch), lambda: self.on_batch())
            for _ in range(PARTITIONS)
        ]
        self.topics: tuple[Topic, ...] = ()
        self.owners: tuple[int, ...] = (-1,) * PARTITIONS
        self.generation = 0
        """Generation of the owners' group at the brokers."""
        self.ids = 0
        """Number of member ids given so far."""
        self.quiet = False
        """Clients begin no more requests."""
        self.broken_turns = 0
        """Exceptions that were planted and have not broken a turn yet. Below 0 a turn broke that was not meant to."""
        self.figures: Counter[str] = Counter()
        """The number of times that each thing has happened."""
        self.endings = Endings()
        self.tracer: Callable[[str], None] | None = None
        # What a planted bug may switch off.
        self.leases = True
        self.replay_to_init = False

    @property
    def now(self) -> int:
        return self.sched.now

    @property
    def runs_may_be_late(self) -> bool:
        """Whether a run may be given up, and the next one begin, before the assignor has ended."""
        return self.config.assignor_timeout_ms < 1_500

    @property
    def hold_bound_ms(self) -> int:
        """No request waits longer for a takeover. One that was held and then broke its turn may be held again."""
        return self.service.hold_ms * (2 if self.faults.breaks else 1) + 3 * TICK_MS

    @property
    def wait_bound_ms(self) -> int:
        """No request waits longer for its answer: held during a takeover, waiting for a run, parked behind the batch
        under way and its own, each of which may be slow or given up."""
        return self.hold_bound_ms + self.config.join_wait_ms + 2 * LOST_MS + 1_000

    @property
    def rebalance_bound_ms(self) -> int:
        """No JoinGroup and no SyncGroup waits longer for other members. The join phase of a group that was empty ends
        after the longest rebalance timeout, too, and whoever came in its last moment is in it."""
        return self.wait_bound_ms + REBALANCE_MS + self.classic.initial_rebalance_delay_ms

    def settings(self, kind: str, group_id: str) -> ConsumerConfig | ClassicConfig:
        return self.classic if kind == CLASSIC else self.config

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, PARTITIONS)

    def appoint(self, owners: tuple[int, ...]) -> None:
        self.owners = owners
        self.generation += 1

    def net(self, deliver: Callable[[], None], duplicate: bool = True, later_ms: int = 0) -> None:
        """A message between a client and a front."""
        f, rng = self.faults, self.rng
        if not f.on:
            self.sched.at(later_ms + rng.randint(1, 8), deliver)
            return
        if rng.random() < f.drop:
            return
        for _ in range(2 if duplicate and rng.random() < f.duplicate else 1):
            self.sched.at(later_ms + (rng.randint(1, 900) if rng.random() < f.slow else rng.randint(1, 8)), deliver)

    def strikes(self, probability: float) -> bool:
        return self.faults.on and self.rng.random() < probability

    def trace(self, text: str) -> None:
        if self.tracer is not None:
            self.tracer(f"{self.sched.now} {text}")

    def set_config(self, **values: object) -> None:
        self.config = replace(self.config, **values)  # type: ignore[arg-type]
