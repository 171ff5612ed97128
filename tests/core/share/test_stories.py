"""Conversations with the coordinator of share groups: tests/stories/share/*.txt hold commands and the exact answers.

    pytest tests/core/share/test_stories.py --rewrite      # then read the diff; never commit one you cannot explain

Commands: `topics NAME=PARTITIONS[!ID] ...`, `config KEY=VALUE ...`, `NAME join names=a,b [rack=r] [id=i] ...`,
`NAME heartbeat [epoch=n] [names=a,b] [lost]`, `NAME leave [epoch=n]`, `initialised a:0,1;b:0 [partly] [old]` (the
placeholder member reports that, or not all, or to a command that was withdrawn), `refused CODE` (the broker does not
take it), `left` (it has left the broker's group), `sleep MS`, `finish` (offloaded runs end), `fail` (they fail),
`takeover [lost]`, `group`, `describe`, `may OPERATION`, `done OPERATION`, `delete`, `rebalance REASON`,
`release [stop]`, `taken-in epoch=n m1=a:0;b:1 ...`, `standing`. A member `waits` whose answer comes
with a later line. `#` begins a comment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replace_config
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.runtime.events import (
    Answer,
    DeleteGroup,
    DeletionCheck,
    DeletionCheckReply,
    Event,
    Rebalance,
    ReleaseGroup,
    ReleaseReply,
)
from sidecar.core.runtime.records import Partitions
from sidecar.core.share.adoption import AdoptShare, NativeShareMember
from sidecar.core.share.events import (
    DescribeShareGroup,
    Operation,
    ShareAdmin,
    ShareAdministered,
    ShareAdminReply,
    ShareDescribeReply,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from sidecar.core.share.placeholder import HoldPlaceholder
from sidecar.core.share.records import Kind
from sidecar.core.vocabulary.errors import Code
from tests.core.share.world import World, topic, topic_id
from tests.core.storybook import check, stories

STORIES = stories("share")
GROUP = "g"
Options = dict[str, str]
WHY = "the administrator wants it"


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.ids: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.pending: dict[int, str] = {}
        """Requests that wait for an answer: token -> name."""

    # ---- words --------------------------------------------------------------------------------------------
    def show(self, parts: Partitions) -> str:
        names = {topic_id(i): n for n, i in self.ids.items()}
        told = [f"{names.get(t, t.hex())}:{','.join(map(str, ps))}" for t, ps in sorted(parts.items()) if ps]
        return " ".join(told) or "nothing"

    def read(self, text: str) -> dict[bytes, tuple[int, ...]]:
        found: dict[bytes, tuple[int, ...]] = {}
        for part in filter(None, text.split(";")):
            name, _, numbers = part.partition(":")
            if name != "nothing":
                found[topic_id(self.ids[name])] = tuple(int(n) for n in numbers.split(",") if n)
        return found

    def answer(self, who: str, reply: Answer) -> str:
        assert isinstance(reply, ShareHeartbeatReply)
        if reply.code:
            return f"{who}: {Code(reply.code).name}: {reply.message}"
        self.epochs[who] = reply.member_epoch
        text = f"{who}: epoch {reply.member_epoch}"
        if reply.heartbeat_interval_ms:
            text += f", heartbeat every {reply.heartbeat_interval_ms} ms"
        return text if reply.assignment is None else f"{text}, assigned {self.show(reply.assignment)}"

    def released(self) -> list[str]:
        """Answers that have come to requests of earlier lines."""
        due = [t for t in self.pending if t in self.world.replies]
        return [self.answer(self.pending.pop(t), self.world.replies.pop(t).answer) for t in due]

    def commanded(self) -> list[str]:
        """Returns the commands about placeholder members as lines."""
        commands, self.world.commands = self.world.commands, []
        return [self.command(c) for c in commands]

    def command(self, c: object) -> str:
        if not isinstance(c, HoldPlaceholder):
            return "placeholder: leaves"
        text = f"placeholder: shows {', '.join(c.topic_names) or 'nothing'}"
        return text + (", all is initialised" if c.complete else "")

    def run(self, line: str) -> list[str]:
        words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        if words[0] == "event":
            return self.world.pasted(line)
        command = COMMANDS.get(words[0])
        told = command(self, words[1:], options) if command else [self.member(words[0], words[1:], options)]
        return [*told, *self.commanded(), *self.released()]

    # ---- members ------------------------------------------------------------------------------------------
    def member(self, who: str, words: list[str], options: Options) -> str:
        verb = words[0]
        epoch = {"join": 0, "leave": -1}.get(verb, self.epochs.get(who, 0))
        hb = ShareHeartbeat(options.get("group", GROUP), options.get("id", who), int(options.get("epoch", epoch)))
        if "names" in options:
            hb = replace(hb, topic_names=tuple(filter(None, options["names"].split(","))))
        hb = replace(hb, rack_id=options.get("rack"), client_id=who, client_host=options.get("host", "/h"))
        if "blank" in words:
            hb = replace(hb, **{options["blank"]: " "})
        token = self.world.request(hb)
        if token not in self.world.replies:
            self.pending[token] = who
            return f"{who}: waits"
        reply = self.world.replies.pop(token)
        if "lost" in words:
            return f"{who}: the answer is lost"
        return self.answer(who, reply.answer) + (", remembered" if reply.grant is not None else "")

    # ---- the group ----------------------------------------------------------------------------------------
    def topics(self, words: list[str], options: Options) -> list[str]:
        made = []
        for name, text in options.items():
            count, _, new_id = text.partition("!")
            self.ids[name] = int(new_id) if new_id else self.ids.get(name, len(self.ids) + 1)
            made.append(topic(self.ids[name], name, int(count)))
        self.world.topics(*made)
        return []

    def config(self, words: list[str], options: Options) -> list[str]:
        known: dict[str, Any] = {k: v == "true" if v in ("true", "false") else int(v) for k, v in options.items()}
        self.world.config = replace_config(self.world.config, **known)
        return []

    def initialised(self, words: list[str], options: Options) -> list[str]:
        number = -1 if "old" in words else None
        self.world.initialised(GROUP, self.read(words[0]), "partly" not in words, number)
        return []

    def refused(self, words: list[str], options: Options) -> list[str]:
        self.world.refused(GROUP, Code[words[0]])
        return []

    def left(self, words: list[str], options: Options) -> list[str]:
        self.world.has_left(GROUP)
        return []

    def sleep(self, words: list[str], options: Options) -> list[str]:
        group = self.world.shard.groups.get(GROUP)
        before, at = set(group.member_ids()) if group else set(), len(self.world.log)
        self.world.sleep(int(words[0]))
        gone = sorted(before - set(group.member_ids() if group else ()))
        why = {r.sub_id: r.why for r in self.world.log[at:] if r.kind == Kind.MEMBER}
        return [f"{m} removed: {why[m]}" for m in gone]

    def finish(self, words: list[str], options: Options, error: str = "") -> list[str]:
        at = len(self.world.log)
        self.world.finish(error)
        whys = [r.why for r in self.world.log[at:] if r.kind == Kind.TARGET_METADATA]
        return [f"written: {why}" for why in whys] or ["nothing written"]

    def takeover(self, words: list[str], options: Options) -> list[str]:
        self.pending.clear()
        self.world.takeover(lost="lost" in words)
        self.world.sleep(1, 1)
        return []

    def group(self, words: list[str], options: Options) -> list[str]:
        if GROUP not in self.world.shard.groups:
            return ["no such group"]
        group = self.world.group(GROUP)
        out = [f"{group.state()}, group epoch {group.epoch}, assignment epoch {group.assignment_epoch}"]
        for m in group.members.values():
            out.append(f"  {m.member_id} epoch {m.member_epoch}: has {self.show(m.assigned)}")
            out[-1] += f", target {self.show(group.target.of(m.member_id))}"
        if group.placeholder is not None:
            out.append(f"  {group.placeholder.member_id or 'nobody'} saw {self.show(group.placeholder.initialised)}")
        return out

    def describe(self, words: list[str], options: Options) -> list[str]:
        reply = self.world.ask(DescribeShareGroup(GROUP))
        assert isinstance(reply, ShareDescribeReply)
        if reply.code:
            return [f"{Code(reply.code).name}: {reply.message}"]
        out = [f"{reply.state}, epoch {reply.epoch}/{reply.assignment_epoch}, {reply.assignor}"]
        for m in reply.members:
            has = " ".join(f"{n}:{','.join(map(str, ps))}" for _, n, ps in m.assignment) or "nothing"
            out.append(
                f"  {m.member_id} {m.rack_id} {m.member_epoch} {m.client_id} {m.client_host} {m.topic_names}: {has}"
            )
        return out

    def plain(self, event: Event) -> list[str]:
        """The code of the answer, and what else there is to it."""
        reply = self.world.ask(event)
        if reply.code:
            return [f"{Code(reply.code).name}: {reply.message}"]
        if isinstance(reply, ShareAdminReply):
            there = "the group is here" if reply.exists else "no such group"
            return [there + (", its placeholder must leave" if reply.placeholder else "")]
        if isinstance(reply, DeletionCheckReply):
            return [f"{reply.kind} group of {reply.members}, subscribed to {', '.join(sorted(reply.subscribed))}"]
        return [f"{reply.members} members"] if isinstance(reply, ReleaseReply) else [Code(reply.code).name]

    def taken_in(self, words: list[str], options: Options) -> list[str]:
        epoch = int(options.pop("epoch"))
        natives = []
        for who, text in options.items():
            self.epochs[who] = epoch
            parts = self.read(text)
            natives.append(NativeShareMember(who, None, epoch, who, "/h", tuple(sorted(self.ids)), parts))
        names = {topic_id(i): n for n, i in self.ids.items()}
        why = "taken over from the broker"
        return self.plain(AdoptShare(GROUP, epoch, epoch, "simple", tuple(natives), names, why))


COMMANDS: dict[str, Callable[[Story, list[str], Options], list[str]]] = {
    "topics": Story.topics,
    "config": Story.config,
    "initialised": Story.initialised,
    "refused": Story.refused,
    "left": Story.left,
    "sleep": Story.sleep,
    "finish": Story.finish,
    "fail": lambda story, words, options: story.finish(words, options, "injected"),
    "takeover": Story.takeover,
    "group": Story.group,
    "describe": Story.describe,
    "taken-in": Story.taken_in,
    "may": lambda story, words, options: story.plain(ShareAdmin(GROUP, Operation(words[0]))),
    "done": lambda story, words, options: story.plain(ShareAdministered(GROUP, Operation(words[0]), WHY)),
    "delete": lambda story, words, options: story.plain(DeleteGroup(GROUP)),
    "rebalance": lambda story, words, options: story.plain(Rebalance(GROUP, " ".join(words))),
    "release": lambda story, words, options: story.plain(ReleaseGroup(GROUP, WHY, words == ["stop"])),
    "standing": lambda story, words, options: story.plain(DeletionCheck(GROUP)),
}


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, Story().run, request.config.getoption("--rewrite"))
