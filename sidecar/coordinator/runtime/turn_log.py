"""`log.turns`: every event that reached a group, with its records and answers, as text that can be pasted into a story
(tests/stories/README.md). It helps to find bugs: a line for each turn, with all that members sent.
"""

from __future__ import annotations

from typing import Any

from msgspec import json

from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.turn import Now
from sidecar.link.ports import Logger


def command_of(event: Event) -> str:
    """Returns the line of a story that makes this event."""
    if isinstance(event, AssignorDone):
        return "fail" if event.output is None else "finish"
    return f"event {_text(event)}"


def _text(of: Any) -> str:
    return json.encode(of, enc_hook=repr).decode()


class TurnLog:
    def __init__(self, log: Logger) -> None:
        self._log = log
        self._last_ms: dict[int, int] = {}
        """Partition -> monotonic time of its last turn, in ms."""

    def turn(self, partition: int, event: Event | None, fx: Effects, now: Now) -> None:
        """Logs a turn. `event` None: time has passed, or topics or settings have changed."""
        outcome = [f"# writes {type(r).__name__} {_text(r)}" for r in fx.records]
        outcome += [f"# answers {_text(r.answer)}" for r in fx.replies]
        if event is None and not outcome:
            return
        passed_ms = now.mono_ms - self._last_ms.get(partition, now.mono_ms)
        self._last_ms[partition] = now.mono_ms
        lines = [f"sleep {passed_ms}"] if passed_ms else []
        lines += [command_of(event)] if event is not None else []
        self._log.info("turn", partition=partition, story="\n".join([*lines, *outcome]))
