"""Regular expressions are matched in the background; then, where the broker has an authorizer, what they matched is
shown to it on the connection of who asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecar.coordinator.background import Background
from sidecar.core.commands import Work
from sidecar.core.consumer.regexes import RegexResolved, ResolveRegex
from sidecar.core.events import NO_TOKEN, Event
from sidecar.core.regex import resolve
from sidecar.core.topics import TopicImage
from sidecar.link.ports import Logger


@dataclass(frozen=True, slots=True)
class _Matched:
    """What regular expressions matched, until a front has said what of it may be seen."""

    partition: int
    attempt: int
    group_id: str
    token: int
    topics: Mapping[str, tuple[str, ...]]
    names_version: int


class Visible:
    """`ask(token, topics)`: ask the front of this request, and say whether it is there; `done(partition, attempt,
    event)`: the work has ended."""

    def __init__(
        self,
        background: Background,
        authorizer: Callable[[], bool],
        ask: Callable[[int, frozenset[str]], bool],
        done: Callable[[int, int, Event], None],
        log: Logger,
    ) -> None:
        self._background = background
        self._authorizer = authorizer
        self._ask = ask
        self._done = done
        self._log = log
        self._matched: dict[int, _Matched] = {}

    def resolve(self, c: Work, ask: ResolveRegex, image: TopicImage) -> None:
        def work() -> dict[str, tuple[str, ...]]:
            return resolve(ask.regexes, image.by_name)

        def done(found: dict[str, tuple[str, ...]] | None, error: BaseException | None) -> None:
            if found is None:
                self._log.error("regular expressions were not resolved", group_id=ask.group_id, error=repr(error))
                found = {}
            matched = _Matched(c.partition, c.attempt, ask.group_id, ask.token, found, image.names_version)
            topics = frozenset(t for ts in found.values() for t in ts)
            if not self._authorizer() or not topics:
                self._resolved(matched, frozenset())
                return
            if ask.token != NO_TOKEN:
                self._matched[ask.token] = matched
            if ask.token == NO_TOKEN or not self._ask(ask.token, topics):
                self._matched.pop(ask.token, None)
                self._resolved(matched, None)

        self._background.submit("regex", work, done)

    def told(self, token: int, hidden: frozenset[str] | None) -> None:
        """By the front: what may not be seen, or None if nobody can say."""
        matched = self._matched.pop(token, None)
        if matched is not None:
            self._resolved(matched, hidden)

    def front_gone(self, its: Callable[[int], bool]) -> None:
        for token in [t for t in self._matched if its(t)]:
            self.told(token, None)

    def _resolved(self, m: _Matched, hidden: frozenset[str] | None) -> None:
        """`hidden` None: nobody could be asked, so nothing counts; the next heartbeat asks again."""
        if hidden is None:
            event = RegexResolved(m.group_id, {}, m.names_version, m.token)
        else:
            seen = {r: tuple(t for t in ts if t not in hidden) for r, ts in m.topics.items()}
            event = RegexResolved(m.group_id, seen, m.names_version)
        self._done(m.partition, m.attempt, event)
