"""The groups that the sidecars coordinate, by the coordinator's last GroupRules; before the first one, by the
settings."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.group_patterns import Patterns
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.messages import GroupRules


class Managed:
    """Decides which groups are managed. `own`: what the settings say; `managing`: whether they name any group;
    `refused`: the owners' group, which handlers treat as a managed one without rights."""

    def __init__(self, own: Callable[[str], bool], managing: bool, refused: str = "") -> None:
        self.known = False
        """Whether the coordinator has reported which groups are managed."""
        self.managing = managing
        self._own, self._own_managing = own, managing
        self._refused = refused
        self._matches = own
        self._rules = GroupRules()
        self._answers: BoundedCache[str, bool] = BoundedCache(make=self._managed)
        self.managed: Callable[[str], bool] = self._answers.__getitem__
        """Whether the sidecars coordinate this group."""

    def _managed(self, group_id: str) -> bool:
        if group_id == self._refused and group_id:
            return True
        rules = self._rules
        if group_id in rules.moved:
            return rules.moved[group_id]
        return self._matches(group_id) or (
            bool(rules.unread) and partition_for(group_id, rules.partitions) in rules.unread
        )

    def moved(self, group_id: str) -> bool:
        """Returns whether an order names this group; for "", whether patterns are stored."""
        return group_id in self._rules.moved if group_id else self._matches is not self._own

    def follow(self, rules: GroupRules) -> None:
        if rules.include is None and rules.exclude is None:
            self._matches, managing = self._own, self._own_managing
        else:
            self._matches = Patterns(rules.include or (), rules.exclude or ())
            managing = bool(rules.include)
        self._rules = rules
        self.managing = managing or any(rules.moved.values()) or bool(rules.unread)
        self._answers.clear()
        self.known = True
