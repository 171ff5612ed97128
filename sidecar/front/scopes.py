"""The facts that calls share, by kind of client: any client, another sidecar, or a client whose request came before it
was known which groups are managed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sidecar.api.call import OwnNames, Scope
from sidecar.core.vocabulary.errors import name_of
from sidecar.front.managed import Managed
from sidecar.front.settings import FrontSettings
from sidecar.front.waiting_room import WaitingRoom
from sidecar.link.messages import GroupRules
from sidecar.link.ports import Figures


class Scopes:
    def __init__(self, settings: FrontSettings, figures: Figures) -> None:
        self._settings = settings
        self._managed = Managed(settings.managed, settings.managing, settings.own.group)
        self.clients = Scope(
            settings.node_id,
            self._managed.managed,
            settings.managing,
            settings.access_keep_ms,
            settings.new_id,
            settings.modern_as_classic,
            settings.share,
            settings.streams,
            self._managed.moved,
            committed=lambda code: figures("commits", name_of(code).lower() if code else "accepted").inc(),
            sizes=settings.sizes,
            cut=lambda limit: figures("cut", limit).inc(),
            own=settings.own,
        )
        self.learnt = self.clients.learnt
        self._sidecars = replace(self.clients, managed=self._managed_but_own, own=OwnNames())
        """Scope of the other sidecars, where they come over this listener."""
        self.doubtful = replace(self.clients, managed=lambda group_id: True, moved=lambda group_id: False)
        """Scope of requests that waited in vain for the managed groups: any group may be managed."""
        self._unsure = WaitingRoom()
        """Requests that wait until the managed groups are known. They follow from the settings only where nothing is
        stored yet. A member that is passed to its broker too early may find a second coordinator there."""

    def _managed_but_own(self, group_id: str) -> bool:
        return not self._settings.own.is_group(group_id) and self._managed.managed(group_id)

    @property
    def known(self) -> bool:
        """Whether the coordinator has reported which groups are managed."""
        return self._managed.known

    def of(self, principal: str) -> Scope:
        return self._sidecars if principal in self._settings.own_principals else self.clients

    def wait_until_known(self, until_ms: int, go_on: Callable[[], None], late: Callable[[], None]) -> None:
        self._unsure.wait(until_ms, go_on, late)

    def in_doubt(self, scope: Scope) -> Scope:
        """Returns the scope for a request that waited in vain for the managed groups."""
        return scope if scope is self._sidecars else self.doubtful

    def follow(self, rules: GroupRules) -> None:
        self._managed.follow(rules)
        self.clients.managing = self._sidecars.managing = self._managed.managing
        self._unsure.release()
