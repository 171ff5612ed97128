"""Matches regular expressions in the background; then, if the broker has an authorizer, asks it on the connection of
the member which of the matched topics that member may see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sidecar.coordinator.runtime.background import REGEX, Background
from sidecar.coordinator.runtime.topic_refresh import ALL, TopicRefresh
from sidecar.coordinator.settings.settings_in_force import SettingsInForce
from sidecar.core.consumer.regexes import RegexResolved, ResolveRegex
from sidecar.core.runtime.commands import Work
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.vocabulary.topic_regex import resolve
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.link.ports import Figures, Logger

LOOK_S = 0.5
"""Seconds that a new expression waits until all topics have been read. If that takes longer, it matches the known
topics, and the others when they are known."""
RESTS = 9
"""Rest of a group after a run that was cut, in multiples of the time that a run may take."""


@dataclass(frozen=True, slots=True)
class _Matched:
    """The matches of a group's expressions, until a front has reported which topics the member may see."""

    partition: int
    attempt: int
    group_id: str
    token: int
    topics: Mapping[str, tuple[str, ...]]
    names_version: int


class RegexResolver:
    """Resolves expressions. `ask(token, topics)`: asks the front of this request, and returns whether it is connected;
    `done(partition, attempt, event)`: called when the work has ended."""

    def __init__(
        self,
        background: Background,
        configs: SettingsInForce,
        fresh: TopicRefresh,
        ask: Callable[[int, frozenset[str]], bool],
        done: Callable[[int, int, Event], None],
        figures: Figures,
        log: Logger,
    ) -> None:
        self._background = background
        self._configs = configs
        self._fresh = fresh
        self._ask = ask
        self._done = done
        self._log = log
        self._cut = figures("regex_cut")
        self._rests: dict[str, float] = {}
        """Group whose last run was cut -> end of its rest: so no group has more than a tenth of the thread."""
        self._matched: dict[int, _Matched] = {}

    def resolve(self, c: Work, ask: ResolveRegex, image: Callable[[], TopicImage]) -> None:
        """Begins to resolve a group's expressions. `image()`: the topics as they are known when the work begins."""
        rest_s = self._rests.pop(ask.group_id, 0.0) - time.monotonic()
        if rest_s > 0:
            asyncio.get_running_loop().call_later(rest_s, self._submit, c, ask, image)
        elif ask.reads_all_topics:
            self._fresh.look(ALL, partial(self._submit, c, ask, image), LOOK_S)
        else:
            self._submit(c, ask, image)

    def _submit(self, c: Work, ask: ResolveRegex, now: Callable[[], TopicImage]) -> None:
        limit_s, image = self._configs.regex_time_s, now()

        def work() -> dict[str, tuple[str, ...]]:
            return resolve(ask.regexes, image.by_name, limit_s, time.thread_time)

        def done(matches: dict[str, tuple[str, ...]] | None, error: BaseException | None) -> None:
            if matches is None:
                self._log.error("regular expressions were not resolved", group_id=ask.group_id, error=repr(error))
                matches = {}
            elif len(matches) < len(ask.regexes):
                self._cut.inc()
                self._log.info("regular expressions take too long", group_id=ask.group_id)
                now_s = time.monotonic()
                self._rests = {g: end_s for g, end_s in self._rests.items() if end_s > now_s}  # a group may be gone
                self._rests[ask.group_id] = now_s + RESTS * limit_s
            matched = _Matched(c.partition, c.attempt, ask.group_id, ask.token, matches, image.names_version)
            topics = frozenset(t for ts in matches.values() for t in ts)
            if not self._configs.broker.authorizer or not topics:
                self._resolved(matched, frozenset())
                return
            if ask.token != NO_TOKEN:
                self._matched[ask.token] = matched
            if ask.token == NO_TOKEN or not self._ask(ask.token, topics):
                self._matched.pop(ask.token, None)
                self._resolved(matched, None)

        self._background.submit(REGEX, work, done)

    def answered(self, token: int, hidden: frozenset[str] | None) -> None:
        """Takes in the front's answer: the topics that the member may not see, or None if the broker was not asked."""
        matched = self._matched.pop(token, None)
        if matched is not None:
            self._resolved(matched, hidden)

    def front_gone(self, its: Callable[[int], bool]) -> None:
        for token in [t for t in self._matched if its(t)]:
            self.answered(token, None)

    def _resolved(self, m: _Matched, hidden: frozenset[str] | None) -> None:
        """Reports the resolved expressions. `hidden` None: no broker could be asked, so no match counts; the next
        heartbeat asks again."""
        if hidden is None:
            event = RegexResolved(m.group_id, {}, m.names_version, m.token)
        else:
            seen = {r: tuple(t for t in ts if t not in hidden) for r, ts in m.topics.items()}
            event = RegexResolved(m.group_id, seen, m.names_version)
        self._done(m.partition, m.attempt, event)
