"""Faults on purpose: the next requests of one API are refused, lost, late, or not answered at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from sidecar.wire.apis import Api

Matches = Callable[[Any], bool]
ALWAYS = 1 << 30


class Kind(Enum):
    FAIL = auto()
    DROP = auto()
    DELAY = auto()
    HANG = auto()


@dataclass
class Fault:
    """`done`: the request takes effect, but the connection is lost before its answer; `parked`: what a hanging request
    would have done."""

    kind: Kind
    times: int
    matches: Matches
    code: int = 0
    seconds: float = 0.0
    done: bool = False
    met: int = 0
    """The number of requests that have met this fault."""
    parked: list[Callable[[], None]] = field(default_factory=list)

    def release(self) -> None:
        """Requests that hang are handled now, and later ones hang no more."""
        self.times = 0
        parked, self.parked = self.parked, []
        for act in parked:
            act()

    def end(self) -> None:
        """From now on requests are handled as usual; those that hang go on hanging."""
        self.times = 0


class Faults:
    def __init__(self) -> None:
        self._of: dict[int, list[Fault]] = {}

    def fail(self, api: Api, code: int, times: int = 1, matches: Matches = lambda req: True) -> Fault:
        """Refuses these requests with that code; they have no effect."""
        return self._add(api, Fault(Kind.FAIL, times, matches, code=code))

    def drop(self, api: Api, times: int = 1, done: bool = False, matches: Matches = lambda req: True) -> Fault:
        """The connection is lost instead of an answer."""
        return self._add(api, Fault(Kind.DROP, times, matches, done=done))

    def delay(self, api: Api, seconds: float, times: int = 1, matches: Matches = lambda req: True) -> Fault:
        return self._add(api, Fault(Kind.DELAY, times, matches, seconds=seconds))

    def hang(self, api: Api, times: int = 1, matches: Matches = lambda req: True) -> Fault:
        """Holds these requests back, unhandled, until `release`."""
        return self._add(api, Fault(Kind.HANG, times, matches))

    def take(self, api: int, req: Any) -> Fault | None:
        """The fault that this request meets, if there is one."""
        for fault in self._of.get(api, ()):
            if fault.times > 0 and fault.matches(req):
                fault.times -= 1
                fault.met += 1
                return fault
        return None

    def _add(self, api: Api, fault: Fault) -> Fault:
        self._of.setdefault(api, []).append(fault)
        return fault
