"""Requests that wait: for a coordinator, for the managed groups to be known, or for the owner of their group, because
the known owner may be gone.

A client that is sent to a dead owner, or refused during a takeover, backs off and asks again. One that waits a moment
gets its answer as soon as there is one. Thousands may wait: they go on in their order, some in each turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.core.vocabulary.placement import partition_for
from sidecar.front.clock import next_turn, now_ms
from sidecar.link.messages import View
from sidecar.link.turn_queue import TurnQueue

TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class _Waiting:
    groups: tuple[str, ...]
    until_ms: int
    go_on: Callable[[], None]
    late: Callable[[], None]


def in_doubt(view: View, groups: tuple[str, ...]) -> bool:
    """Whether the owner of one of these groups may be gone."""
    owners, suspects = view.owners, view.suspects
    return bool(suspects and owners) and any(owners[partition_for(g, len(owners))] in suspects for g in groups)


class WaitingRoom:
    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._calls = TurnQueue(next_turn)
        """Lets the requests go on whose wait is over."""
        self._ticks = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(
        self,
        until_ms: int,
        go_on: Callable[[], None],
        late: Callable[[], None] | None = None,
        groups: tuple[str, ...] = (),
    ) -> None:
        """Calls `go_on` when the awaited state is there, and `late` if it is not there by `until_ms`. Without `late`,
        `go_on` is called in both cases."""
        self._waiting.append(_Waiting(groups, until_ms, go_on, late or go_on))
        self._tick_later()

    def release(self, over: Callable[[tuple[str, ...]], bool] = lambda groups: True) -> None:
        """Ends the wait: of all requests, or of those whose groups satisfy `over`."""
        self._calls.add(w.go_on for w in self._leave(lambda w: over(w.groups)))

    def clear(self) -> None:
        """Drops all requests without a call."""
        self._waiting = []
        self._calls.clear()

    def _tick_later(self) -> None:
        if self._waiting and not self._ticks:
            self._ticks = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._ticks = False
        at_ms = now_ms()
        late = self._leave(lambda w: w.until_ms <= at_ms)
        self._tick_later()
        self._calls.add(w.late for w in late)

    def _leave(self, over: Callable[[_Waiting], bool]) -> list[_Waiting]:
        if not self._waiting:
            return []
        waiting, self._waiting = self._waiting, []
        leave: list[_Waiting] = []
        for w in waiting:
            (leave if over(w) else self._waiting).append(w)
        return leave
