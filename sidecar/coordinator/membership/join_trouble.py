"""Trouble of this sidecar with joining the owners' group: the pause until its next try, and the report to operators."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.coordinator.membership.owners_client import GroupRefused
from sidecar.core.vocabulary.errors import Code
from sidecar.link.ports import Logger

AGAIN_S, AGAIN_MAX_S = 0.1, 2.0
"""Pause after a failed try. While the broker refuses the sidecar it doubles each time, up to the second value."""
REMEDIES: dict[int, str] = {
    Code.INVALID_SESSION_TIMEOUT: "set ownership.session_timeout_ms as the brokers' group.min.session.timeout.ms and "
    "group.max.session.timeout.ms allow",
    Code.GROUP_MAX_SIZE_REACHED: "set group.max.size of the brokers to the number of sidecars at least",
    Code.INCONSISTENT_GROUP_PROTOCOL: "other clients are members of the group `ownership.group`: stop them",
    Code.GROUP_AUTHORIZATION_FAILED: "give the sidecar Read of the group `ownership.group` (sidecar acls)",
}
LOOK = "look for this error in the log of the broker that coordinates the group `ownership.group`"


class JoinTrouble:
    """`due(what)`: whether trouble of this name may be logged again."""

    def __init__(self, due: Callable[[str], bool], log: Logger) -> None:
        self.problem = ""
        """Error of the last failed try; "" once the sidecar has joined."""
        self._due = due
        self._log = log
        self._pause_s = AGAIN_S

    def met(self, exc: Exception) -> float:
        """Takes in a failed try. Returns the seconds until the next one."""
        self.problem = str(exc) or "timed out"
        self._log.debug("owners' group not reached", error=self.problem)
        if not isinstance(exc, GroupRefused):
            return AGAIN_S
        if self._due("refused"):
            remedy = REMEDIES.get(exc.code, LOOK)
            self._log.warning("the owners' group refuses this sidecar", problem=self.problem, remedy=remedy)
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, AGAIN_MAX_S)
        return pause_s

    def over(self) -> None:
        """Called when this sidecar has joined."""
        self.problem, self._pause_s = "", AGAIN_S
