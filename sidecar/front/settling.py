"""Requests that wait until it is known who owns their group, because the owner that is known may be gone.

A client that is led to a dead owner, or refused by the one that is just taking over, backs off and asks again; one
that waits a moment has its answer when there is one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.core.placement import partition_for
from sidecar.link.messages import View

TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class _Waiting:
    groups: tuple[str, ...]
    until_ms: int
    go_on: Callable[[], None]


def in_doubt(view: View, groups: tuple[str, ...]) -> bool:
    """Whether the owner of one of these groups may be gone."""
    owners, suspects = view.owners, view.suspects
    return bool(suspects and owners) and any(owners[partition_for(g, len(owners))] in suspects for g in groups)


class Settling:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, groups: tuple[str, ...], until_ms: int, go_on: Callable[[], None]) -> None:
        """`go_on` is called later: when no owner of these groups is in doubt any more, or then."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._waiting.append(_Waiting(groups, until_ms, go_on))

    def looked(self, view: View) -> None:
        if self._waiting:
            self._release(lambda w: not in_doubt(view, w.groups))

    def _tick(self) -> None:
        at_ms = self._now_ms()
        self._release(lambda w: w.until_ms <= at_ms)
        if self._waiting:
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _release(self, over: Callable[[_Waiting], bool]) -> None:
        waiting, self._waiting = self._waiting, []
        go_on: list[_Waiting] = []
        for w in waiting:
            (go_on if over(w) else self._waiting).append(w)
        for w in go_on:
            w.go_on()
