"""Base classes of events and answers, and the events that concern groups of any kind.

An event is one request, or the end of background work that the coordinator started. It names the class of its answer,
so that any refusal can be written without knowing the event. Events and answers are msgspec structs: `link` sends them
unchanged from the front to the coordinator and back.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.vocabulary.errors import Code

FOR_EVER_MS = 1 << 62
NO_TOKEN = 0
"""Token of an event without a requester to answer."""


class Answer(Struct, tag=True, gc=False):
    """An error code and its text. `message` None: the client gets no text, as with some of Kafka's own errors."""

    code: Code = Code.NONE
    message: str | None = None

    def undelivered(self, group_id: str) -> Event | None:
        """Returns the event that the coordinator needs if this answer to a request for `group_id` does not reach its
        client; usually none."""
        return None


class Event(Struct, tag=True, gc=False):
    """One event. `group_id` decides which partition, and so which coordinator, handles it."""

    answer: ClassVar[type[Answer]] = Answer
    inner: ClassVar[bool] = False
    """Whether only the coordinator itself makes such events, and never a front."""

    group_id: str

    def refused(self, code: Code, message: str | None) -> Answer:
        return self.answer(code, message)

    def joins(self) -> bool:
        """Whether the sender is not yet a member and asks to become one."""
        return False

    def largest_bytes(self) -> int:
        """About how many bytes of the request go into a single record; 0 where that is little."""
        return 0


class DeletionCheckReply(Answer):
    """State of a group for DeleteGroups and OffsetDelete. `members`: their number; `subscribed`: the topics they
    subscribe to; `subscribed_all`: the topics are unknown, so all count as subscribed; `opaque`: an active classic
    group of another protocol type than consumer, as of Kafka Connect, whose members may not use topics at all."""

    exists: bool = False
    kind: str = ""
    members: int = 0
    subscribed: frozenset[str] = frozenset()
    subscribed_all: bool = False
    opaque: bool = False


class DeletionCheck(Event):
    """Asks whether the group exists, has members, and subscribes to which topics. DeleteGroups and OffsetDelete ask
    this before they send anything to the broker."""

    answer: ClassVar[type[Answer]] = DeletionCheckReply


class DeleteGroup(Event):
    """DeleteGroups (api 42, KIP-229): allowed only for a group without members."""

    why: str = "group deleted"


class Listed(Struct, gc=False):
    """One group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class Rebalance(Event):
    """An administrator's order to assign this group anew. Has no effect on a group without members."""

    inner: ClassVar[bool] = True

    why: str


class ReleaseReply(Answer):
    """`members`: how many the group still has; `placeholder`: whether a placeholder member may still be at the
    broker."""

    members: int = 0
    placeholder: bool = False


class ReleaseGroup(Event):
    """Moves the group back to its broker: its members give up their partitions, and are sent away when none owns any.
    May be repeated. `stop`: cancels the move."""

    answer: ClassVar[type[Answer]] = ReleaseReply
    inner: ClassVar[bool] = True

    why: str
    stop: bool = False


class ListReply(Answer):
    groups: tuple[Listed, ...] = ()


class ListGroups(Event):
    """ListGroups (api 16): the groups whose coordinator is here. `group_id` is empty: the event concerns all
    partitions."""

    answer: ClassVar[type[Answer]] = ListReply

    group_id: str = ""


class GroupsWithRecordsReply(Answer):
    groups: frozenset[str] = frozenset()


class GroupsWithRecords(Event):
    """Asks which of these groups have records in the state topic, wherever their coordinator is. The owner answers from
    its state, other sidecars from their tail, which is a little behind."""

    answer: ClassVar[type[Answer]] = GroupsWithRecordsReply

    group_id: str = ""
    candidates: tuple[str, ...] = ()
