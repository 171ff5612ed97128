"""What every event and every answer has in common, and the events that concern groups of any kind.

An event is one request, or the end of something the coordinator asked for. It names the class of its answer, so that
any refusal can be written without knowing the event. Events and answers are msgspec structs: `link` sends them as
they are from the front to the coordinator and back.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.vocabulary.errors import Code

FOR_EVER_MS = 1 << 62
NO_TOKEN = 0
"""The token of an event that nobody waits for."""


class Answer(Struct, tag=True, gc=False):
    """`message` None: the client gets no text, as with some of Kafka's own errors."""

    code: Code = Code.NONE
    message: str | None = None


class Event(Struct, tag=True, gc=False):
    """`group_id` decides which partition, and so which coordinator, the event belongs to."""

    answer: ClassVar[type[Answer]] = Answer
    inner: ClassVar[bool] = False
    """It comes from the coordinator's own work, never from a front."""

    group_id: str

    def refused(self, code: Code, message: str | None) -> Answer:
        return self.answer(code, message)

    def joins(self) -> bool:
        """Whether its sender is no member yet and would become one."""
        return False

    def largest_bytes(self) -> int:
        """About how much of the request goes into a single record, where that may be much."""
        return 0


class StandingReply(Answer):
    """`exists`: there is such a group; `members`: how many it has; `subscribed`: the topics they subscribe to;
    `subscribed_all`: the topics are unknown, so all count as subscribed; `opaque`: an active classic group of another
    protocol type than consumer, as of Kafka Connect, whose members may not use topics at all."""

    exists: bool = False
    kind: str = ""
    members: int = 0
    subscribed: frozenset[str] = frozenset()
    subscribed_all: bool = False
    opaque: bool = False


class Standing(Event):
    """Whether there is such a group, has members, and subscribes to which topics. DeleteGroups and OffsetDelete ask
    this before they send anything to the broker."""

    answer: ClassVar[type[Answer]] = StandingReply


class DeleteGroup(Event):
    """DeleteGroups (api 42, KIP-229): allowed only without members."""

    why: str = "group deleted"


class Listed(Struct, gc=False):
    """One group as ListGroups shows it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class Rebalance(Event):
    """The administrator wants this group to be assigned anew. Nobody waits for it where the group has no members."""

    inner: ClassVar[bool] = True

    why: str


class ReleaseReply(Answer):
    """`members`: how many the group still has; `placeholder`: the core knows of one that may still be at the broker."""

    members: int = 0
    placeholder: bool = False


class ReleaseGroup(Event):
    """The group goes back to the broker: its members give up what they own, and are sent away when nobody owns
    anything. It may be said again and again. `stop`: the group stays here after all."""

    answer: ClassVar[type[Answer]] = ReleaseReply
    inner: ClassVar[bool] = True

    why: str
    stop: bool = False


class ListReply(Answer):
    groups: tuple[Listed, ...] = ()


class ListGroups(Event):
    """ListGroups (api 16): the groups whose coordinator is here. `group_id` is empty: it concerns all partitions."""

    answer: ClassVar[type[Answer]] = ListReply

    group_id: str = ""


class KnownReply(Answer):
    groups: frozenset[str] = frozenset()


class KnownGroups(Event):
    """Which of these groups have records in the state topic, wherever their coordinator is. The owner answers from its
    state, other sidecars from their tail, which is a little behind."""

    answer: ClassVar[type[Answer]] = KnownReply

    group_id: str = ""
    candidates: tuple[str, ...] = ()
