"""Looks at topics that cannot wait until the list is read anyway (core/runtime/topic_lookup.py): the requests that wait
for a look, and its time.

A request that comes while a look is under way waits for the next one: a topic that was made meanwhile may be missing
from this one. So requests share looks. Between two looks are at least `look_s`, and as long as the last one took.
MetadataRefresh makes the looks, and each of its own readings of the list counts as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sidecar.core.runtime.topic_lookup import NAMES_MAX, LookFirst, TopicsSeen
from sidecar.core.vocabulary.topics import TopicsMoved
from sidecar.link.ports import Figures
from sidecar.link.turn_queue import TurnQueue

PASSED_S, SLOW_S = 0.1, 0.5
"""Seconds after a change at which a look should have it, as the change reaches the broker a little after the controller
has answered. If nothing has changed by then, the broker may be slow: more looks follow, each after twice the pause,
until the pause exceeds the second value."""
WAIT_S = 0.3
"""Seconds that a request waits at most for changes one behind the other: it should not see only the first half of a
topic's deletion and creation."""
ALL = None
Names = tuple[str, ...] | None


@dataclass(eq=False, slots=True)
class _Wait:
    """A request that waits for a look. `then` is called once: when these topics were looked at, or when `late` is due.
    A look that is too early for a change that has passed does not count, unless it begins after `most_s`."""

    names: Names
    then: Callable[[], None]
    most_s: float
    late: asyncio.TimerHandle | None = None


class TopicRefresh:
    def __init__(self, look_s: float, turn_queue: TurnQueue, figures: Figures) -> None:
        self.served = False
        """Whether a MetadataRefresh makes looks. Without one no request waits."""
        self._look_s = look_s
        self._turn_queue = turn_queue
        self._looked, self._late = figures("topic_looks", "looked"), figures("topic_looks", "late")
        self._waiting: dict[_Wait, None] = {}
        self._wanted = asyncio.Event()
        self._free_s = 0.0
        """Monotonic time of the earliest next look."""
        self._changed = False
        """Whether topics have changed, through this sidecar or a peer, and no look has begun since."""
        self._settled_s = 0.0
        """Monotonic time from which a new look has the last change that passed."""
        self._again: asyncio.TimerHandle | None = None
        self._seen = False
        """Whether a look has seen a topic change since the last change passed."""
        self.moved = TopicsMoved()
        self.notify_peers: Callable[[], None] = lambda: None
        """Called for each look because of a change, so that the other sidecars look, too."""

    def look(self, names: Names, then: Callable[[], None] = lambda: None, wait_s: float = 0.0) -> None:
        """Asks for a look. `then` is called when a look has ended that began after this call and should have all
        changes that have passed, or after `wait_s`; 0: no limit."""
        if not self.served:
            then()
            return
        wait = _Wait(names, then, time.monotonic() + WAIT_S)
        if wait_s:
            wait.late = asyncio.get_running_loop().call_later(wait_s, self._too_late, wait)
        self._waiting[wait] = None
        self._wanted.set()

    def look_first(self, ask: LookFirst, done: Callable[[TopicsSeen], None]) -> None:
        request = ask.request
        if request is None:
            self.look(ask.names)
        else:
            seen = TopicsSeen(ask.group_id, request, ask.token)
            self.look(ask.names, lambda: done(seen), ask.wait_ms / 1000)

    def passed(self) -> None:
        """Called when a request that makes, grows or deletes topics was answered on a client's connection."""
        if not self.served:
            return
        self._settled_s = time.monotonic() + PASSED_S
        self._seen = False
        if not self._changed:
            self._look_and_notify()
        self._look_again(PASSED_S)

    def topics_changed(self) -> None:
        """Called when topics have changed, through this sidecar or through a peer that reports so."""
        if self.served and not self._changed:
            self._changed = self.moved.now = True
            self.look(ALL)

    def _look_and_notify(self) -> None:
        self.topics_changed()
        self.notify_peers()

    def seen(self) -> None:
        """Called when a look has found changed topics."""
        self._seen = True

    def _look_again(self, after_s: float) -> None:
        """Sets the timer of the next look, one for all changes that pass until then."""
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(after_s, self._passed_long_ago, after_s)

    def _passed_long_ago(self, waited_s: float) -> None:
        if waited_s == PASSED_S or not self._seen:
            self._look_and_notify()
            if waited_s < SLOW_S:
                self._look_again(2 * waited_s)

    def _too_late(self, wait: _Wait) -> None:
        self._late.inc()
        self._waiting.pop(wait, None)
        wait.late = None
        then, wait.then = wait.then, lambda: None
        then()

    # ---- for metadata_refresh.py ----------------------------------------------------------------------------
    async def rest(self, most_s: float) -> bool:
        """Waits for `most_s`, or until a look is wanted and may begin; returns True in the second case."""
        try:
            async with asyncio.timeout(most_s):
                await self._wanted.wait()
                await asyncio.sleep(max(0.0, self._free_s - time.monotonic()))
        except TimeoutError:
            return False
        return True

    def names(self) -> Names:
        """Returns the topics that requests wait for; ALL if these are too many, or any request waits for all."""
        names: dict[str, None] = {}
        for wait in self._waiting:
            if wait.names is ALL:
                return ALL
            names.update(dict.fromkeys(wait.names))
        return tuple(names) if len(names) <= NAMES_MAX else ALL

    async def during(self, look: Awaitable[None]) -> None:
        """Makes a look. The requests that wait now go on when it has ended, also if it fails."""
        waiting, self._waiting = self._waiting, {}
        self._wanted.clear()
        self._changed = False
        began_s = time.monotonic()
        try:
            await look
        finally:
            ended_s = time.monotonic()
            self._free_s = max(began_s + self._look_s, 2 * ended_s - began_s)
            self.moved.now = self._changed or began_s < self._settled_s
            self._looked.inc()
            for wait in waiting:
                if began_s < min(self._settled_s, wait.most_s):
                    self._waiting[wait] = None  # `_again` is a look that has it
                    continue
                if wait.late is not None:
                    wait.late.cancel()
                self._turn_queue.add([wait.then])
