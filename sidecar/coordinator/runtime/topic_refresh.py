"""Looks at topics that cannot wait until the list is read anyway (core/runtime/topic_lookup.py): who waits for one, and
when it is.

A request that comes while a look is under way waits for the next one: what was made meanwhile may be missing from this
one. So all share looks. Between two of them are at least `look_s`, and as long as the last one took. The follower makes
them, and each of its own readings of the list counts as one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sidecar.core.runtime.topic_lookup import NAMES_MAX, LookFirst, TopicsSeen
from sidecar.core.vocabulary.topics import TopicsMoved
from sidecar.link.ports import Figures

PASSED_S, SLOW_S = 0.1, 0.5
"""The controller's word reaches the broker a little after it has answered: a look that begins so long after a change
should have it. If nothing has changed by then, the broker may be slow: there are more, at growing distances."""
WAIT_S = 0.3
"""So long a request waits for one change behind the other: of a topic that is deleted and made anew it should not see
the first half alone."""
ALL = None
Names = tuple[str, ...] | None


@dataclass(eq=False, slots=True)
class _Wait:
    """`then` is called once: when these topics were looked at, or when `late` is due. A look may be too early for what
    passes meanwhile; not one that begins after `most_s`."""

    names: Names
    then: Callable[[], None]
    most_s: float
    late: asyncio.TimerHandle | None = None


class TopicRefresh:
    def __init__(self, look_s: float, figures: Figures) -> None:
        self.served = False
        """A follower makes the looks. Without one nobody waits."""
        self._look_s = look_s
        self._looked, self._late = figures("topic_looks", "looked"), figures("topic_looks", "late")
        self._waiting: dict[_Wait, None] = {}
        self._wanted = asyncio.Event()
        self._free_s = 0.0
        """No look before then."""
        self._changed = False
        """A change of topics passed through this sidecar, and no look has begun since."""
        self._settled_s = 0.0
        """A look that begins then has the last change that passed."""
        self._again: asyncio.TimerHandle | None = None
        self._seen = False
        """Some topic has changed since the last change passed."""
        self.moved = TopicsMoved()
        self.tell: Callable[[], None] = lambda: None
        """The other sidecars have to look, too, as often as this one does because of a change."""

    def look(self, names: Names, then: Callable[[], None] = lambda: None, wait_s: float = 0.0) -> None:
        """`then` follows the end of a look that begins after this call and should have what has passed, or the end of
        `wait_s`; 0: there is no such end."""
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
        """A request that makes, grows or deletes topics was answered on a client's connection."""
        if not self.served:
            return
        self._settled_s = time.monotonic() + PASSED_S
        self._seen = False
        if not self._changed:
            self._look_and_tell()
        self._look_again(PASSED_S)

    def told(self) -> None:
        """Topics have changed: through this sidecar, or, as a peer says, through it."""
        if self.served and not self._changed:
            self._changed = self.moved.now = True
            self.look(ALL)

    def _look_and_tell(self) -> None:
        self.told()
        self.tell()

    def seen(self) -> None:
        """Topics are others than they were."""
        self._seen = True

    def _look_again(self, after_s: float) -> None:
        """Once for all changes that pass until then."""
        if self._again is not None:
            self._again.cancel()
        self._again = asyncio.get_running_loop().call_later(after_s, self._passed_long_ago, after_s)

    def _passed_long_ago(self, waited_s: float) -> None:
        if waited_s == PASSED_S or not self._seen:
            self._look_and_tell()
            if waited_s < SLOW_S:
                self._look_again(2 * waited_s)

    def _too_late(self, wait: _Wait) -> None:
        self._late.inc()
        self._waiting.pop(wait, None)
        wait.late = None
        then, wait.then = wait.then, lambda: None
        then()

    # ---- for the follower -----------------------------------------------------------------------------------
    async def rest(self, most_s: float) -> bool:
        """Rest for so long, or until a look is wanted and may begin: then the answer is True."""
        try:
            async with asyncio.timeout(most_s):
                await self._wanted.wait()
                await asyncio.sleep(max(0.0, self._free_s - time.monotonic()))
        except TimeoutError:
            return False
        return True

    def names(self) -> Names:
        """The topics that are wanted now."""
        found: dict[str, None] = {}
        for wait in self._waiting:
            if wait.names is ALL:
                return ALL
            found.update(dict.fromkeys(wait.names))
        return tuple(found) if len(found) <= NAMES_MAX else ALL

    async def during(self, look: Awaitable[None]) -> None:
        """Requests that wait now go on when this look has ended, also when it fails."""
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
                wait.then()
