"""What a front and the coordinator say to each other. They share nothing else.

A front holds the clients' connections; the coordinator holds the groups. Both may be one process (loopback.py) or two
(codec.py gives the bytes). Messages arrive in the order in which they were sent, each once, or the link is down and
both sides forget what they knew of each other.

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
    """The front has answered this member under a grant. It says so every `TOUCH_MS` at most for each member, and the
    coordinator adds that to the member's session."""

    group_id: str
    member_id: str


class AccessAnswer(Struct, tag=True, gc=False):
    """Answer to `AskAccess`. `hidden` None: nobody can say any more, as the client or its broker is gone."""

    token: int
    hidden: frozenset[str] | None


class CommitEnded(Struct, tag=True, gc=False):
    """The commit that was let pass with this ticket is not under way any more. Not `sure`: the connection broke, and it
    may still arrive."""

    ticket: int
    sure: bool


class SettingsPassed(Struct, tag=True, gc=False):
    """A change of broker settings passed through a client's connection: it is worth reading them at once."""


class BrokerSilence(Struct, tag=True, gc=False):
    """The broker beside the sidecar is silent, and has been for so long; `quiet_ms` -1: it answers again."""

    quiet_ms: int


class TopicsPassed(Struct, tag=True, gc=False):
    """Topics were made, grown or deleted through a client's connection: it is worth reading them at once."""


# ---- to the front -------------------------------------------------------------------------------------------------
class Lease(Struct, tag=True, gc=False):
    """Until when the coordinator may take itself for the owner, by link/clock.py and by the wall clock. Both processes
    are on one machine; the second one counts where a pause of the whole machine is not seen by the first."""

    until_ms: int
    until_wall_ms: int = FOR_EVER_MS


class View(Struct, tag=True, gc=False):
    """What a front must know of the cluster. `owners[p]`: node id of the owner of partition p, -1 while unknown;
    `leaders[p]`: of the leader of `__consumer_offsets`-p; `brokers`: the addresses that clients know; `authorizer`:
    whether the broker has one; `suspects`: node ids of owners that may be gone, which will soon be known; `idle_ms`:
    after which the broker ends an idle connection, not above 0: it ends none; `lacking`: kinds of groups that this
    sidecar coordinates, and another does not yet."""

    owners: tuple[int, ...] = ()
    leaders: tuple[int, ...] = ()
    brokers: dict[int, Address] = field(default_factory=dict)
    authorizer: bool = True
    suspects: tuple[int, ...] = ()
    idle_ms: int = 600_000
    lacking: tuple[str, ...] = ()


class GroupRules(Struct, tag=True, gc=False):
    """Which groups the sidecars coordinate, once that is known. `include`, `exclude`: patterns that count instead of
    the front's own settings; None: those count. `moved`: what is different for single groups."""

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    moved: dict[str, bool] = field(default_factory=dict)


class AskAccess(Struct, tag=True, gc=False):
    """May the principal of this request's connection DESCRIBE these topics? The request is not answered yet."""

    token: int
    topics: frozenset[str]


# ---- events that concern settings, not the state of a group -------------------------------------------------------
class SettingChange(Struct, gc=False):
    """One resource of AlterConfigs. `resource_type`: 4 broker, 32 group; value None removes the setting."""

    resource_type: int
    name: str
    values: dict[str, str | None]


class AlterReply(Answer):
    """Of the changes that were refused: "{resource type}/{name}" -> error code and message."""

    refused: dict[str, tuple[int, str | None]] = field(default_factory=dict)


class AlterSettings(Event):
    """Check, and unless `validate_only` write down, these changes. `group_id` is empty; `client`: who asks for them."""

    answer: ClassVar[type[Answer]] = AlterReply

    changes: tuple[SettingChange, ...] = ()
    validate_only: bool = True
    client: str = ""


class SettingValue(Struct, gc=False):
    """`own`: the group's own value; `broker`, `source`: that of the broker level and where it comes from; `default`:
    Kafka's; `hidden`: what stands at the broker below `broker`, with where it comes from."""

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
    """What is set that only sidecars know (core/vocabulary/group_config.py, GROUP_MOVES); under "", of all brokers."""


class DescribeSettings(Event):
    """The settings in force of these groups. Waits until the broker's own settings are known."""

    answer: ClassVar[type[Answer]] = SettingsReply

    groups: tuple[str, ...] = ()


class ConfiguredReply(Answer):
    groups: tuple[str, ...] = ()


class ConfiguredGroups(Event):
    """Groups that have settings of their own in the state topic."""

    answer: ClassVar[type[Answer]] = ConfiguredReply


class WhoseGroup(Event):
    """Somebody wants to join this group, which is the broker's for all that is known here. Answered when what was
    written in the state topic before is known. `group_id` is empty, as the group has no owner among the sidecars."""

    name: str = ""


# ---- an event that concerns the broker's group, not the state of ours ---------------------------------------------
class OpenOffsets(Event):
    """Offsets of this group are to be deleted at the broker (OffsetDelete, DeleteGroups). Answered when the broker can
    tell which topics are `subscribed`, or, while the group has no members here, when none is left there either."""

    subscribed: frozenset[str] = frozenset()


class OpenShareState(Event):
    """Share state of this group is to be altered or deleted at the broker. Answered when no placeholder of the sidecars
    is left in the broker's group, which the broker then takes for empty."""


SETTINGS_EVENTS: tuple[type[Event], ...] = (AlterSettings, DescribeSettings, ConfiguredGroups, WhoseGroup)
ToCoordinator = Request | Touch | AccessAnswer | CommitEnded | SettingsPassed | BrokerSilence | TopicsPassed
ToFront = Reply | Void | Lease | View | GroupRules | AskAccess
