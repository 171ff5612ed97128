"""The messages between a front and the coordinator. They share nothing else.

A front holds the clients' connections; the coordinator holds the groups. Both may be one process (loopback.py) or two
(codec.py gives the bytes). Messages arrive in the order in which they were sent, each once, or the link is down and
both sides forget what they knew of each other. Only Void and Lease may arrive before messages that were sent earlier;
such a reply arrives without the grant that they ended.

front -> coordinator: Request, Touch, AccessAnswer, CommitEnded, SettingsPassed, BrokerSilence, TopicsPassed
coordinator -> front: Reply, Void (core), Lease, View, GroupRules, AskAccess
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from sidecar.core.runtime.commands import Void as Void
from sidecar.core.runtime.effects import TOUCH_MS as TOUCH_MS
from sidecar.core.runtime.effects import Grant as Grant
from sidecar.core.runtime.effects import Reply as Reply
from sidecar.core.runtime.events import FOR_EVER_MS, Answer, Event

Address = tuple[str, int]
"""Host and port."""


# ---- to the coordinator -------------------------------------------------------------------------------------------
class Request(Struct, tag=True, gc=False):
    """One event of a client. The front has already asked the broker whether its principal may do this."""

    token: int
    event: Event


class Touch(Struct, tag=True, gc=False):
    """Reports that the front has answered this member under a grant. The front sends one each `TOUCH_MS` at most for
    each member, and the coordinator adds that to the member's session."""

    group_id: str
    member_id: str


class AccessAnswer(Struct, tag=True, gc=False):
    """Answer to `AskAccess`. `hidden` None: it cannot be known any more, as the client or its broker is gone."""

    token: int
    hidden: frozenset[str] | None


class CommitEnded(Struct, tag=True, gc=False):
    """Reports that the commit with this ticket is not under way any more. Not `sure`: the connection broke, and it may
    still arrive."""

    ticket: int
    sure: bool


class SettingsPassed(Struct, tag=True, gc=False):
    """Reports that a change of broker settings passed through a client's connection: they should be read at once."""


class BrokerSilence(Struct, tag=True, gc=False):
    """Reports that the broker beside the sidecar is silent, and for how long; `quiet_ms` -1: it answers again."""

    quiet_ms: int


class TopicsPassed(Struct, tag=True, gc=False):
    """Reports that topics were created, grown or deleted through a client's connection: they should be read at once."""


# ---- to the front -------------------------------------------------------------------------------------------------
class Lease(Struct, tag=True, gc=False):
    """End of the time in which the coordinator may act as owner, by link/clock.py and by the wall clock. Both processes
    are on one machine; the wall clock counts where the first one does not see a pause of the whole machine."""

    until_ms: int
    until_wall_ms: int = FOR_EVER_MS


class View(Struct, tag=True, gc=False):
    """The cluster for a front. `owners[p]`: node id of the owner of partition p, -1 while unknown; `leaders[p]`: of the
    leader of `__consumer_offsets`-p; `brokers`: the addresses that clients know; `authorizer`: whether the broker has
    one; `suspects`: node ids of owners that may be gone, which will soon be known; `idle_ms`: time after which the
    broker ends an idle connection, not above 0: it ends none; `lacking`: kinds of groups that this sidecar coordinates,
    and another does not yet."""

    owners: tuple[int, ...] = ()
    leaders: tuple[int, ...] = ()
    brokers: dict[int, Address] = field(default_factory=dict)
    authorizer: bool = True
    suspects: tuple[int, ...] = ()
    idle_ms: int = 600_000
    lacking: tuple[str, ...] = ()


class GroupRules(Struct, tag=True, gc=False):
    """The rules that decide which groups are managed, once they are known. `include`, `exclude`: patterns instead of
    the front's own settings; None: the settings count. `moved`: exceptions for single groups; `unread`: partitions of
    the state topic, of `partitions`, whose exceptions are not known yet: each of their groups counts as managed."""

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    moved: dict[str, bool] = field(default_factory=dict)
    unread: tuple[int, ...] = ()
    partitions: int = 0


class AskAccess(Struct, tag=True, gc=False):
    """Asks whether the principal behind this open request may DESCRIBE these topics."""

    token: int
    topics: frozenset[str]


# ---- events that concern settings, not the state of a group -------------------------------------------------------
class SettingChange(Struct, gc=False):
    """One resource of AlterConfigs. `resource_type`: 4 broker, 32 group; value None removes the setting."""

    resource_type: int
    name: str
    values: dict[str, str | None]


class AlterReply(Answer):
    """Result of AlterSettings. `refused`: "{resource type}/{name}" -> error code and message."""

    refused: dict[str, tuple[int, str | None]] = field(default_factory=dict)


class AlterSettings(Event):
    """Checks these changes, and unless `validate_only` writes them. `group_id` is empty; `client`: asks for them."""

    answer: ClassVar[type[Answer]] = AlterReply

    changes: tuple[SettingChange, ...] = ()
    validate_only: bool = True
    client: str = ""


class SettingValue(Struct, gc=False):
    """One setting of a group. `own`: the group's own value; `broker`, `source`: that of the broker level and its
    origin; `default`: Kafka's; `hidden`: the broker's values below `broker`, with their origins."""

    name: str
    own: str | None
    broker: str
    source: int
    default: str
    hidden: tuple[tuple[str, int], ...] = ()


class SettingsReply(Answer):
    groups: dict[str, tuple[SettingValue, ...]] = field(default_factory=dict)
    at_broker: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings that the broker keeps for these groups from the time before they were managed."""
    moves: dict[str, dict[str, str]] = field(default_factory=dict)
    """Settings that only sidecars know (GROUP_MOVES in core/vocabulary/group_config.py), by group; "": of brokers."""


class DescribeSettings(Event):
    """Asks for the settings in force of these groups; `own`: only of those that have settings of their own, here or at
    the broker. Waits until the broker's own settings are known."""

    answer: ClassVar[type[Answer]] = SettingsReply

    groups: tuple[str, ...] = ()
    own: bool = False


class ConfiguredReply(Answer):
    groups: tuple[str, ...] = ()


class ConfiguredGroups(Event):
    """Asks for the groups that have settings of their own in the state topic."""

    answer: ClassVar[type[Answer]] = ConfiguredReply


class CheckGroupIsBrokers(Event):
    """Asks before a join whether this group is the broker's, as it seems here. Answered when all earlier records of the
    state topic are known. `group_id` is empty, as the group has no owner among the sidecars."""

    name: str = ""


# ---- an event that concerns the broker's group, not the state of ours ---------------------------------------------
class OpenOffsets(Event):
    """Prepares the broker's group for the deletion of offsets (OffsetDelete, DeleteGroups). Answered when the broker
    knows which topics are `subscribed`, or, while the group has no members here, when it has none there."""

    subscribed: frozenset[str] = frozenset()


class OpenShareState(Event):
    """Prepares the broker's group for altering or deleting share state there. Answered when it has no placeholder of
    the sidecars any more: the broker then takes it for empty."""


SETTINGS_EVENTS: tuple[type[Event], ...] = (AlterSettings, DescribeSettings, ConfiguredGroups, CheckGroupIsBrokers)
ToCoordinator = Request | Touch | AccessAnswer | CommitEnded | SettingsPassed | BrokerSilence | TopicsPassed
ToFront = Reply | Void | Lease | View | GroupRules | AskAccess
