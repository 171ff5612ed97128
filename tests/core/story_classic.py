"""The words of a story for members of classic groups; test_stories.py lists them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace as changed

from sidecar.core.classic.adoption import NativeMember
from sidecar.core.classic.embedded import assigned, subscription
from sidecar.core.classic.events import (
    DescribeClassic,
    DescribeClassicReply,
    JoinedMember,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    SyncReply,
)
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.runtime.effects import Log
from sidecar.core.runtime.events import Answer, DeletionCheck, DeletionCheckReply, Event
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import consumer_protocol_assignment as ca
from tests.core import classic_client
from tests.core.classic_client import ClassicClient
from tests.core.world import World

Options = dict[str, str]
A = TypeVar("A", bound=Answer)
OTHERWISE = {"id", "gen", "instance", "protocol", "type", "group"}
"""Options that say something else than the member knows of itself."""


# ---- bytes as words ------------------------------------------------------------------------------------------------
def places(text: str) -> dict[str, tuple[int, ...]]:
    """`a:0,1;b:2`."""
    parts = (part.partition(":") for part in text.split(";") if part != "nothing")
    return {topic: tuple(int(n) for n in numbers.split(",") if n) for topic, _, numbers in parts}


def show_places(owned: object) -> str:
    assert isinstance(owned, dict)
    return " ".join(f"{t}:{','.join(map(str, ps))}" for t, ps in owned.items()) or "nothing"


def show_metadata(data: bytes) -> str:
    """Returns a member's metadata as text: a consumer's topics and owned partitions, or the bytes."""
    said = subscription(data)
    if said is None:
        return repr(data.decode(errors="replace"))
    text = ",".join(said.topics) or "no topics"
    if said.owned:
        text += f" owns {show_places(said.owned)}"
        text += f" of generation {said.generation}" if said.generation >= 0 else ""
    return text


def show_assignment(data: bytes) -> str:
    if not data:
        return "no bytes"
    found = assigned(data)
    return repr(data.decode(errors="replace")) if found is None else show_places(found)


def show_claim(topic: str, partitions: Sequence[int], generation: int, holder: str) -> str:
    since = f" of generation {generation}" if generation >= 0 else ""
    return f"{show_places({topic: partitions})}{since}, which {holder or 'nobody'} has"


def read_assignment(text: str) -> bytes:
    """`a:0,1;b:2`, `nothing`, or any other word as it is. `!word` at the end is the assignor's own data."""
    text, _, data = text.partition("!")
    if ":" not in text and text != "nothing":
        return text.encode()
    given = [ca.TopicPartition(t, list(ps)) for t, ps in places(text).items()]
    return (3).to_bytes(2, "big") + ca.ConsumerProtocolAssignment(given, data.encode() or None).encode(3)


# ---- commands ------------------------------------------------------------------------------------------------------
@dataclass
class ClassicWords:
    """Each verb gives (token, what to make of its answer), or the lines at once."""

    world: World
    group_id: str
    clients: dict[str, ClassicClient] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)

    def client(self, who: str) -> ClassicClient:
        return self.clients.setdefault(who, ClassicClient(who, self.group_id, made=self.made))

    def ask(self, event: Event, kind: type[A]) -> A:
        reply = self.world.ask(event)
        assert isinstance(reply, kind)
        return reply

    def join(self, who: str, o: Options) -> tuple[int, Callable[[Answer], str]]:
        client = self.client(who)
        client.version = int(o.get("version", client.version))
        client.instance_id = o.get("instance", client.instance_id)
        client.host = o.get("host", client.host)
        client.type = "" if o.get("type") == "none" else o.get("type", client.type)
        client.session_ms = int(o.get("session", client.session_ms))
        client.rebalance_ms = int(o.get("rebalance", client.rebalance_ms))
        if {"protocols", "topics", "owned"} & o.keys() or not client.protocols:
            client.protocols = self.protocols(client, o)
        asked = client.join(o.get("id"), o.get("reason"))
        asked = changed(asked, group_id=o.get("group", self.group_id).replace("none", ""))
        group = self.world.shard.groups.get(asked.group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            asked.new_id = f"{client.begin()}-{asked.new_id}"  # there the whole id is a UUID
        token = self.world.request(asked)
        reply = self.world.replies.get(token)
        code = Code.NONE if reply is None else reply.answer.code
        if not asked.member_id and code not in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            self.made[client.begin()] -= 1  # the id was not used
        if code == Code.MEMBER_ID_REQUIRED and "id" not in o:
            given = self.world.replies.pop(token).answer
            assert isinstance(given, JoinReply)
            client.joined(given)
            token = self.world.request(client.join(reason=o.get("reason")))
        return token, lambda answer: self.joined(client, answer, "id" not in o)

    def native(self, who: str, parts: str, generation: int) -> NativeMember:
        """A member of the broker's group: it is in this generation, and owns these partitions."""
        client = self.client(who)
        client.member_id, client.generation, client.protocol = f"{who}-0", generation, "range"
        owned = places(parts)
        said = classic_client.subscription(["a"], {}, generation - 1)
        client.protocols = (("range", classic_client.subscription(["a"], owned, generation)),)
        client.assignment = read_assignment(parts)
        return NativeMember(client.member_id, client.instance_id, who, "/10.0.0.1", said, client.assignment)

    def protocols(self, client: ClassicClient, o: Options) -> tuple[tuple[str, bytes], ...]:
        if o.get("protocols") == "none":
            return ()
        names = o["protocols"].split(",") if "protocols" in o else [n for n, _ in client.protocols] or ["range"]
        topics = o.get("topics", "a").split(",")
        of = int(o.get("of", -1))
        version = 1 if "owned" in o and "of" not in o else 3
        said = classic_client.subscription(topics, places(o.get("owned", "nothing")), of, version)
        found = (name.partition(":") for name in names)
        return tuple((name, text.encode() if colon else said) for name, colon, text in found)

    def joined(self, client: ClassicClient, answer: Answer, meant: bool) -> str:
        assert isinstance(answer, JoinReply)
        if meant or answer.code in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            client.joined(answer)
        if answer.code:
            given = f", id {answer.member_id}" if answer.code == Code.MEMBER_ID_REQUIRED else ""
            return f"{client.name}: {answer.code.name}{given}"
        text = f"{client.name}: {answer.member_id} in generation {answer.generation}, {answer.protocol}"
        if not answer.members:
            return text + (f", follows {answer.leader}" if answer.leader else ", and nobody leads")
        text += ", leads " + "; ".join(self.shown(m) for m in answer.members)
        return text + (", and leaves the assignment as it is" if answer.skip_assignment else "")

    @staticmethod
    def shown(m: JoinedMember) -> str:
        static = f" as {m.instance_id}" if m.instance_id is not None else ""
        return f"{m.member_id}{static} ({show_metadata(m.metadata)})"

    def sync(self, who: str, o: Options) -> tuple[int, Callable[[Answer], str]]:
        client = self.client(who)
        given = {self.id_of(name): read_assignment(text) for name, text in o.items() if name in self.clients}
        event = client.sync(given)
        event.generation = int(o.get("gen", event.generation))
        event.member_id = o.get("id", event.member_id)
        event.instance_id = o.get("instance", event.instance_id)
        event.protocol = o.get("protocol", event.protocol)
        event.protocol_type = o.get("type", event.protocol_type)
        event.group_id = o.get("group", event.group_id).replace("none", "")
        meant = not OTHERWISE & o.keys()
        return self.world.request(event), lambda answer: self.synced(client, answer, meant)

    def id_of(self, name: str) -> str:
        return self.clients[name].member_id

    @staticmethod
    def synced(client: ClassicClient, answer: Answer, meant: bool) -> str:
        assert isinstance(answer, SyncReply)
        if meant:
            client.synced(answer)
        told = answer.code.name if answer.code else f"assigned {show_assignment(answer.assignment)}"
        return f"{client.name}: {told}"

    def beat(self, who: str, o: Options) -> str:
        client = self.client(who)
        event = client.beat()
        event.generation = int(o.get("gen", event.generation))
        event.member_id = o.get("id", event.member_id)
        event.instance_id = o.get("instance", event.instance_id)
        event.group_id = o.get("group", event.group_id).replace("none", "")
        code = self.ask(event, Answer).code
        if not OTHERWISE & o.keys():
            client.refused(code)
        return f"{who}: {code.name}"

    def leave(self, who: str, o: Options) -> str:
        client = self.client(who)
        event = client.leave(o.get("reason"))
        event.group_id = o.get("group", event.group_id).replace("none", "")
        event.members[0].member_id = o.get("id", client.member_id)
        reply = self.ask(event, LeaveReply)
        code = reply.code or reply.members[0].code
        if code == Code.NONE and "id" not in o:
            client.refused(Code.UNKNOWN_MEMBER_ID)
        return f"{who}: {code.name}"

    def remove(self, words: list[str]) -> list[str]:
        """Each word: INSTANCE, INSTANCE/MEMBER-ID, or /MEMBER-ID."""
        named = [word.partition("/") for word in words]
        members = tuple(Leaving(member_id, instance or None, None) for instance, _, member_id in named)
        reply = self.ask(LeaveGroup(self.group_id, members), LeaveReply)
        assert not reply.code
        return [f"{word}: {left.code.name}" for word, left in zip(words, reply.members, strict=True)]

    def commit(self, who: str, o: Options) -> str:
        client = self.client(who)
        transactional = o.get("transactional") == "true"
        event = client.commit(int(o.get("version", 5 if transactional else 9)), transactional)
        event.member_epoch = int(o.get("gen", event.member_epoch))
        event.member_id = o.get("id", event.member_id)
        event.instance_id = o.get("instance", event.instance_id)
        named = places(o.get("places", "nothing"))
        event.partitions = tuple((topic, bytes(16), p) for topic, numbers in named.items() for p in numbers)
        reply = self.ask(event, CheckReply)
        return f"{who}: {reply.code.name}"

    # ---- questions -----------------------------------------------------------------------------------------
    def describe(self) -> list[str]:
        """As DescribeGroups tells it."""
        reply = self.ask(DescribeClassic(self.group_id, 6), DescribeClassicReply)
        if reply.code:
            return [f"{reply.code.name}: {reply.message}"]
        lines = [", ".join(filter(None, (reply.state, reply.protocol_type, reply.protocol)))]
        for m in reply.members:
            static = f" as {m.instance_id}" if m.instance_id is not None else ""
            says = f" ({show_metadata(m.metadata)})" if m.metadata else ""
            who = f"{m.member_id}{static}, client {m.client_id} at {m.client_host}"
            lines.append(f"  {who}{says}: {show_assignment(m.assignment)}")
        return lines

    def listed(self) -> list[str]:
        """As ListGroups tells it."""
        return [f"{g.group_id}: {g.group_type}, {g.protocol_type!r}, {g.state}" for g in self.world.shard.listed()]

    def deletion_check(self) -> list[str]:
        """Returns the answer to the check that OffsetDelete and DeleteGroups make."""
        reply = self.ask(DeletionCheck(self.group_id), DeletionCheckReply)
        if not reply.exists:
            return ["no such group"]
        topics = "any topic" if reply.subscribed_all else ",".join(sorted(reply.subscribed)) or "no topics"
        return [f"{reply.members} members, " + ("opaque" if reply.opaque else f"subscribed to {topics}")]

    @staticmethod
    def group(g: ClassicGroup) -> list[str]:
        named = f", {g.protocol}, leader {g.leader}" if g.protocol else ""
        lines = [f"{g.state_name()}, generation {g.generation}{named}"]
        for m in g.members.values():
            static = f" as {m.instance_id}" if m.instance_id is not None else ""
            has = show_assignment(g.assignments[m.member_id]) if m.member_id in g.assignments else "nothing yet"
            said = dict(m.protocols)
            says = "; ".join(dict.fromkeys(show_metadata(said[name]) for name in said))
            lines.append(f"  {m.member_id}{static} ({says}): has {has}")
            lines += [f"    stale: {show_claim(c.topic, c.partitions, c.generation, c.holder)}" for c in m.stale_claims]
        return lines

    def reported(self) -> list[str]:
        """Warnings of stale claims since the last line."""
        notes, self.world.notes = self.world.notes, []
        lines = []
        for note in notes:
            if isinstance(note, Log) and note.event == "stale claim":
                f: dict[str, Any] = dict(note.fields)
                claim = show_claim(f["topic"], f["partitions"], f["generation"], f["holder"])
                lines.append(f"reported: {f['member_id']} claims {claim}")
        return lines
