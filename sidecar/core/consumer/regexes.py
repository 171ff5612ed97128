"""Subscriptions by regular expression: when they are resolved, and the effects (KIP-848 'Regular expressions')."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sidecar.core.consumer.config import ConsumerConfig, config_of
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import RegexRecord
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.target_assignment import TARGETS
from sidecar.core.modern.epochs import bump_epoch
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.rebalance_reasons import Reason


@dataclass(frozen=True, slots=True)
class ResolveRegex:
    """Background work: matches these expressions against the topic names, within a time limit. `token`: the request on
    whose connection the broker's authorizer can be asked. `RegexResolved` follows in any case, with empty `topics` if
    it could not be asked. `reads_all_topics`: some expressions were never matched, so all topics are read first."""

    group_id: str
    token: int
    regexes: tuple[str, ...]
    reads_all_topics: bool


class RegexResolved(Event):
    inner: ClassVar[bool] = True

    topics: Mapping[str, tuple[str, ...]]
    names_version: int
    gone_token: int = NO_TOKEN
    """The request whose client is gone, so that the authorizer could not be asked on its connection."""


def refresh_regexes(turn: Turn, group: ConsumerGroup, token: int) -> None:
    """Starts the resolution of expressions that are unresolved, or due: new topic names, or the refresh interval."""
    used = group.subscriptions.regexes()
    if not used:
        return
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if soft.resolving:
        return
    config = config_of(turn, group.group_id)
    known = [group.regexes[r] for r in used if r in group.regexes]
    last_ms = max((r.resolved_ms for r in known), default=0)
    since_ms = turn.now.wall_ms - last_ms
    unresolved = len(known) != len(used)
    if 0 <= since_ms <= config.regex_min_interval_ms and not unresolved and _matched_enough(turn, soft, config):
        return
    due = (
        unresolved
        or any(soft.matched_versions.get(r.regex) != turn.image.names_version for r in known)
        or not 0 <= since_ms <= config.regex_refresh_interval_ms
    )
    if due:
        soft.resolving = True
        soft.matched_ms = [*soft.matched_ms, turn.now.mono_ms][-config.regex_matches :]
        oldest_first = sorted(used, key=lambda r: group.regexes[r].resolved_ms if r in group.regexes else -1)
        turn.fx.background.append(ResolveRegex(group.group_id, token, tuple(oldest_first), unresolved))


def _matched_enough(turn: Turn, soft: ConsumerSoft, config: ConsumerConfig) -> bool:
    """Whether the group has used up its matches of the interval. Kafka allows one, so that it sees a topic made a
    moment after a member joined ten seconds later."""
    since_ms = turn.now.mono_ms - config.regex_min_interval_ms
    return sum(ms >= since_ms for ms in soft.matched_ms) >= config.regex_matches


def names_changed(turn: Turn, group: ConsumerGroup) -> None:
    """Refreshes the expressions after a change of topics. Where the broker has an authorizer, the next heartbeat does
    so: its connection is needed."""
    if group.regexes and not turn.ports.asks_access():
        refresh_regexes(turn, group, NO_TOKEN)


def regex_resolved(turn: Turn, event: RegexResolved) -> None:
    """Takes in the result of `ResolveRegex`: a changed set of topics bumps the epoch (KIP-848 'Regular
    expressions')."""
    group = turn.groups.get(event.group_id)
    if type(group) is not ConsumerGroup:
        return
    soft: ConsumerSoft = turn.soft_of(event.group_id)
    soft.resolving = False
    versions = {**soft.matched_versions, **dict.fromkeys(event.topics, event.names_version)}
    soft.matched_versions = {regex: v for regex, v in versions.items() if group.regex_users(regex)}
    turn.changed(event.group_id)  # heartbeats granted meanwhile did not ask for a resolution
    changed = False
    for regex, topics in event.topics.items():
        if group.regex_users(regex) == 0:
            continue
        old = group.regexes.get(regex)
        changed |= (old.topics if old else ()) != topics
        why = "resolved" if old is None else "refreshed"
        turn.write(RegexRecord(group.group_id, regex, topics, event.names_version, turn.now.wall_ms, why))
    if changed or group.hash_over(turn.image) != group.metadata_hash:
        bump_epoch(turn, group, "topics of a regular expression changed", Reason.TOPICS)
        TARGETS.update(turn, group)
