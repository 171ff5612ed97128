"""The managed groups: patterns and orders for single groups, as they are in the state topic. So all sidecars follow the
same values; where none are stored, each sidecar's own settings count.

**A group is managed as long as it has records in the state topic**, even if patterns or orders have changed since: so a
group that goes back to the broker is the broker's for every front when its last record is gone, and not before.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.group_patterns import Patterns, doubts, fault, split
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.messages import GroupRules
from sidecar.link.ports import Logger
from sidecar.state.keys import StateKey

Store = Callable[[str, dict[str, str | None], str], Awaitable[None]]
"""Writes settings of a group with the reason: group id, name -> value, why."""
AS_MEANT = "sidecar groups patterns --include PATTERN stores a pattern as it is written, with its brackets"


@dataclass(frozen=True)
class OwnRules:
    """Patterns of the sidecar's own settings. `never`: the sidecars' own groups, which are never managed."""

    matches: Callable[[str], bool]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    never: frozenset[str] = frozenset()


class Rules:
    """Patterns and orders in force. `settings`: the settings in the state topic."""

    def __init__(self, own: OwnRules, settings: StoredSettings, log: Logger) -> None:
        self.settings = settings
        self.ready = False
        """Whether the state topic has been read to its end, but for `unread`."""
        self.unread: frozenset[int] = frozenset()
        """Partitions that cannot be read yet. Nobody knows which of their groups are managed, so fronts pass none of
        them to a broker."""
        self.dirty = False
        """Whether the fronts do not know the last change yet."""
        self.overrides: dict[str, str] = {}
        """Group id -> `true`, `false` or `later`: its order, or the owner's verdict about that order."""
        self.later: set[str] = set()
        """Groups whose order or verdict is `later`."""
        self.kept: list[dict[str, None]] = [{} for _ in settings.state.partitions]
        """By partition: groups that have records in the state topic, though they are not wanted here, in the order in
        which that came to be. The tail reports groups that come or go: records may be under way at an order."""
        self._own = own
        self._state = settings.state
        self._log = log
        self._stored: Patterns | None = None
        self._patterns_s = 0.0
        self._since_s: dict[str, float] = {}
        self._peers: dict[int, dict[str, list[str]]] = {}
        settings.state.came_or_went = self._came_or_went

    # ---- questions ----------------------------------------------------------------------------------------
    def wanted(self, group_id: str) -> bool:
        """Returns whether the sidecars should coordinate this group, by order or pattern."""
        order = self.overrides.get(group_id)
        if order is not None:
            return order == "true" and group_id not in self._own.never
        return self.matches(group_id)

    def matches(self, group_id: str) -> bool:
        """Returns whether the patterns in force match this group."""
        return (self._own.matches if self._stored is None else self._stored)(group_id)

    def managed(self, group_id: str) -> bool:
        """Returns whether the sidecars coordinate this group now, or will."""
        return self.wanted(group_id) or self._has_records(group_id)

    def leaves(self, group_id: str) -> bool:
        """Returns whether this group has records in the state topic, though it is not wanted here."""
        return group_id in self.kept[partition_for(group_id, len(self.kept))]

    def whereabouts(self, group_id: str) -> str:
        """Returns `sidecar`, `comes`, `leaves` or `broker`: the group's place or move, as far as this sidecar knows."""
        has_records = self._has_records(group_id)
        if self.wanted(group_id):
            return "sidecar" if has_records else "comes"
        return "leaves" if has_records else "broker"

    def in_force_s(self, group_id: str) -> float:
        """Returns for how many seconds the patterns and this group's order have been unchanged here."""
        return time.monotonic() - max(self._patterns_s, self._since_s.get(group_id, 0.0))

    def message(self) -> GroupRules:
        moved = {g: order == "true" for g, order in self.overrides.items()}
        for kept in self.kept:
            moved.update(dict.fromkeys(kept, True))
        in_doubt = self._stored is not None or self.unread
        moved.update(dict.fromkeys(self._own.never if in_doubt else self._own.never & moved.keys(), False))
        include, exclude = (None, None) if self._stored is None else (self._stored.include, self._stored.exclude)
        return GroupRules(include, exclude, moved, tuple(sorted(self.unread)), len(self.kept))

    def unwanted_in(self, partition: int) -> list[str]:
        """Returns the groups of this partition that an order or verdict leaves to their broker."""
        configs = self._state.partitions[partition].configs
        return [g for g in configs if g in self.overrides and not self.wanted(g)]

    # ---- changes ------------------------------------------------------------------------------------------
    def begin(self, unread: frozenset[int] = frozenset()) -> None:
        """Puts the stored values in force, once the state topic has been read to its end, but for the partitions
        `unread`. Called again when one of these has been read."""
        self.unread = unread
        if not self.ready:
            self.ready = True
            self._patterns_s, self._since_s = 0.0, {}
            self._log_patterns((self._own.include, self._own.exclude))
            self._log_differing()
            self._recount()

    def stored(self, group_id: str, name: str) -> bool:
        """Takes in a setting that was written to the topic, or removed. Returns whether the wanted groups change."""
        if group_id and name in (cf.MANAGED, cf.VERDICT):
            return self._override(group_id)
        if not group_id and name in [f"/{n}" for n in cf.BROKER_MOVES]:
            return self._patterns()
        return False

    def _override(self, group_id: str) -> bool:
        before = self.overrides.get(group_id)
        now = self.settings.verdict(group_id) or self.settings.value(group_id, cf.MANAGED)
        if now == before:
            return False
        if now is None:
            del self.overrides[group_id]
        else:
            self.overrides[group_id] = now
        (self.later.add if now == cf.LATER else self.later.discard)(group_id)
        self._since_s[group_id] = time.monotonic()
        self.dirty = True
        if self.ready:
            self._count(partition_for(group_id, len(self.kept)), group_id)
            self._log.info("group moves", group_id=group_id, managed=now or "as the patterns say")
        return True

    def _patterns(self) -> bool:
        include, exclude = (self.settings.value("", f"/{n}") for n in cf.BROKER_MOVES)
        broken = fault(include or "") or fault(exclude or "")
        if broken:
            self._log.error("stored patterns are void", problem=broken)
            return False
        before = self._own if self._stored is None else self._stored
        self._stored = None
        if include is not None or exclude is not None:
            own = self._own
            includes = own.include if include is None else split(include)
            excludes = own.exclude if exclude is None else split(exclude)
            self._stored = Patterns(includes, excludes, own.never)
        self._patterns_s = time.monotonic()
        self.dirty = True
        if self.ready:  # values that were stored once and count no more are not logged
            self._log_patterns((before.include, before.exclude))
            self._log_differing()
            self._recount()
        return True

    def _log_patterns(self, former: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        """Logs what an operator must know about the stored patterns: that they are in force, and doubtful ones."""
        if self._stored is None:
            return
        include, exclude = self._stored.include, self._stored.exclude
        if (include, exclude) != (self._own.include, self._own.exclude):
            self._log.warning("stored patterns count, not the sidecar's own", include=include, exclude=exclude)
        for doubt in (*doubts(include, former[0]), *doubts(exclude, former[1])):
            self._log.warning("stored pattern is doubtful", problem=doubt, remedy=AS_MEANT)

    # ---- the other sidecars' own settings ---------------------------------------------------------------------
    def own_patterns(self) -> dict[str, list[str]]:
        """Returns this sidecar's own patterns in the form that its membership sends to the others."""
        return {"include": sorted(self._own.include), "exclude": sorted(self._own.exclude)}

    def peers(self, patterns: Mapping[int, dict[str, list[str]]]) -> None:
        """Takes in the patterns of the other sidecars' own settings, by node id."""
        if patterns != self._peers:
            self._peers = dict(patterns)
            self._log_differing()

    def differing(self) -> list[int]:
        """Returns the nodes whose own patterns differ from this sidecar's, where no stored patterns replace them."""
        own = self.own_patterns()
        counts = [n for n, key in zip(own, cf.BROKER_MOVES, strict=True) if self.settings.value("", f"/{key}") is None]
        return sorted(node for node, patterns in self._peers.items() if any(patterns[n] != own[n] for n in counts))

    def _log_differing(self) -> None:
        nodes = self.differing() if self.ready else []
        if nodes:
            theirs = {node: self._peers[node] for node in nodes}
            remedy = "make them alike, or store them once for all: sidecar groups patterns"
            self._log.error("sidecars have different patterns", own=self.own_patterns(), theirs=theirs, remedy=remedy)

    # ---- groups that are still here -------------------------------------------------------------------------
    def _recount(self) -> None:
        kept = [{g: None for g in part.groups if not self.wanted(g)} for part in self._state.partitions]
        if kept != self.kept:
            self.kept = kept
            self.dirty = True

    def _came_or_went(self, partition: int, group_id: str) -> None:
        """Takes in that the tail has read the group's first record, or the end of its last one."""
        if self.ready:
            self._count(partition, group_id)

    def _count(self, partition: int, group_id: str) -> None:
        kept = self.kept[partition]
        stays = group_id in self._state.partitions[partition].groups and not self.wanted(group_id)
        if stays != (group_id in kept):
            self.dirty = True
            if stays:
                kept[group_id] = None
            else:
                del kept[group_id]

    def _has_records(self, group_id: str) -> bool:
        return bool(self._records(group_id))

    def _records(self, group_id: str) -> Mapping[StateKey, bytes]:
        return self._state.partitions[partition_for(group_id, len(self._state.partitions))].groups.get(group_id, {})
