"""Virtual time and the processes that live in it: one seed, one order of events.

A `Proc` is whatever can crash or stand still: a sidecar, a client, a broker. What it is to do waits in one heap that
all share; what comes due while it stands still is done when it goes on, and after a crash never. Each has clocks of its
own: the wall clock may jump, and a suspended host does not count the time that it slept.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

Work = Callable[[], object]
WALL_START_MS = 1_800_000_000_000


class Life(Enum):
    RUNS = "runs"
    STANDS = "stands still"
    DEAD = "dead"


@dataclass(slots=True, eq=False)
class Timer:
    """Something that is to be done once."""

    proc: Proc | None
    work: Work | None

    def cancel(self) -> None:
        self.work = None


class Universe:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self.events = 0
        self.current: Proc | None = None
        """The process whose work is being done."""
        self.after_each: Work = lambda: None
        """The checks: called behind an event if something is `new`, and behind the first one from `look_ms` on."""
        self.new = False
        self.look_ms = 0.0
        self.watched: list[Callable[[], bool]] = []
        """Asked behind each event until they say that they have seen enough."""
        self.halts = False
        """`run_until` ends behind the event that is under way."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._soon: deque[Timer] = deque()
        """Work for this very time, behind what the heap has for it."""
        self._count = 0

    def at(self, ms: float, work: Work, proc: Proc | None = None) -> Timer:
        """Do this at that time; `proc`: only if it runs then, or when it goes on."""
        timer = Timer(proc, work)
        if ms <= self.now_ms:
            self._soon.append(timer)
        else:
            self._count += 1
            heapq.heappush(self._heap, (ms, self._count, timer))
        return timer

    def later(self, ms: float, work: Work, proc: Proc | None = None) -> Timer:
        return self.at(self.now_ms + ms, work, proc)

    def again(self, missed: Iterable[Timer]) -> None:
        """Do now what came due while its process stood still."""
        self._soon += missed

    def run_until(self, ms: float) -> None:
        heap, soon, runs = self._heap, self._soon, Life.RUNS
        while True:
            if heap and heap[0][0] <= self.now_ms:
                timer = heapq.heappop(heap)[2]
            elif soon:
                timer = soon.popleft()
            elif heap and heap[0][0] <= ms:
                self.now_ms, _, timer = heapq.heappop(heap)
            else:
                break
            work, proc = timer.work, timer.proc
            if work is None:
                continue
            if proc is not None and proc.life is not runs:
                if proc.life is Life.STANDS:
                    proc.missed.append(timer)
                continue
            self.current, timer.work = proc, None
            work()
            self.current = None
            self.events += 1
            if self.new or self.now_ms >= self.look_ms:
                self.new = False
                self.after_each()
            for sees in tuple(self.watched):
                if sees():
                    self.watched.remove(sees)
            if self.halts:
                self.halts = False
                return
        self.now_ms = max(self.now_ms, ms)

    def enter(self, proc: Proc, work: Work) -> None:
        """Do this as a part of that process."""
        before, self.current = self.current, proc
        try:
            work()
        finally:
            self.current = before


@dataclass(eq=False)
class Proc:
    """One life of a process: who is started again is another one."""

    universe: Universe
    name: str
    host: str
    wall_offset_ms: float = 0.0
    slept_ms: float = 0.0
    """For so long its host was suspended: time that the monotonic clock does not count."""
    paused_ms: float = 0.0
    """The part of that in which its whole machine stood still: no clock of it counts that but the wall clock."""
    life: Life = Life.RUNS
    missed: deque[Timer] = field(default_factory=deque)
    on_death: list[Work] = field(default_factory=list)
    on_resume: list[Work] = field(default_factory=list)
    _since_ms: float = 0.0

    def mono_ms(self) -> int:
        return int(self.mono_s() * 1000)

    def mono_s(self) -> float:
        return (self.universe.now_ms - self.slept_ms) / 1000 + 1000.0

    def boot_ms(self) -> int:
        return int(self.boot_s() * 1000)

    def boot_s(self) -> float:
        return (self.universe.now_ms - self.paused_ms) / 1000 + 1000.0

    def wall_ms(self) -> int:
        return int(WALL_START_MS + self.universe.now_ms + self.wall_offset_ms)

    def later(self, ms: float, work: Work) -> Timer:
        return self.universe.later(ms, work, self)

    @property
    def alive(self) -> bool:
        return self.life is not Life.DEAD

    def crash(self) -> None:
        """Ends the process: nothing that it was about to do is done."""
        if self.life is Life.DEAD:
            return
        self.life = Life.DEAD
        self.missed.clear()
        for work in self.on_death:
            work()

    def stand_still(self) -> None:
        if self.life is Life.RUNS:
            self.life = Life.STANDS
            self._since_ms = self.universe.now_ms

    def go_on(self, slept: bool = False, paused: bool = False) -> None:
        """`slept`: its host was suspended, and its monotonic clock stood still; `paused`: all clocks but the wall's."""
        if self.life is not Life.STANDS:
            return
        self.life = Life.RUNS
        if slept:
            self.slept_ms += self.universe.now_ms - self._since_ms
        if paused:
            self.paused_ms += self.universe.now_ms - self._since_ms
        missed, self.missed = self.missed, deque()
        self.universe.again(missed)
        for work in list(self.on_resume):
            work()
