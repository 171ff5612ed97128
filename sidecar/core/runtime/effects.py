"""Effects of an event. A handler changes nothing outside the shard: it appends effects, and the shard's driver carries
them out (docs/design/decisions.md, Turns and replies).

An answer is an effect addressed to a token, not a return value: another member's event or a timer may release it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.records import Record

TOUCH_MS = 100
"""A front reports an answer under a grant at most this often for each member; a session lasts that much longer."""


class Grant(Struct, gc=False):
    """Lets the front give this very answer to the same request bytes of this member until `until_ms` (monotonic), as
    long as the group does not change. The grant ends with the session's deadline at that time, so that no member is
    removed for silence while its grant lasts. `revision` is the group's when the answer was made."""

    group_id: str
    member_id: str
    revision: int
    until_ms: int


class Reply(Struct, tag=True, gc=False):
    """The answer to the request with this token."""

    token: int
    answer: Answer
    grant: Grant | None = None


class Background(Protocol):
    """Work for a background thread. Its end comes back as an event of the same group."""

    @property
    def group_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Log:
    """A line in the log. Logging is an effect, so that tests can see it."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class Count:
    """An increment of a counter. `metric` is a name in process/metrics.py, `labels` are its label values."""

    metric: str
    labels: tuple[str, ...] = ()
    by: int = 1


@dataclass(frozen=True, slots=True)
class Observe:
    """A time for the histogram `metric`."""

    metric: str
    ms: int
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Effects:
    """Effects of one turn, carried out in this order: records, background work, voided grants, answers."""

    records: list[Record] = field(default_factory=list)
    proved: list[str] = field(default_factory=list)
    """Groups whose answers must wait for a fenced write, even if no record of them is written."""
    background: list[Background] = field(default_factory=list)
    voided: list[str] = field(default_factory=list)
    """Groups whose grants end now."""
    replies: list[Reply] = field(default_factory=list)
    notes: list[Log | Count | Observe] = field(default_factory=list)

    def log(self, event: str, level: str = "info", **fields: object) -> None:
        self.notes.append(Log(event, fields, level))

    def count(self, metric: str, *labels: str, by: int = 1) -> None:
        self.notes.append(Count(metric, labels, by))

    def observe(self, metric: str, ms: int, *labels: str) -> None:
        self.notes.append(Observe(metric, ms, labels))
