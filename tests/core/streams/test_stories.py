"""Conversations with the coordinator of streams groups: tests/stories/streams/*.txt hold commands and exact answers.

    pytest tests/core/streams/test_stories.py --rewrite      # then read the diff; never commit one you cannot explain

Commands: `topics NAME=PARTITIONS ...` (all that there are), `grow NAME=PARTITIONS ...` (beside the others; 0: it goes),
`config KEY=VALUE ...`, `topology NAME[@EPOCH] SUBTOPOLOGY ...` (for the next joins; a subtopology is
`id:sources>sinks<repartition sources[=n]!changelogs[*all]`, lists by commas, `*`: all are copartitioned), `NAME join
[topology=t] [instance=i] [process=p] [endpoint=h:p] [tags=k:v] [rack=r] [timeout=ms] [v0] [without=field]
[wrong=field:value]`, `NAME heartbeat [epoch=n] [owns|owns=TASKS] [offsets=0:1:99] [shutdown] [lost]`, `NAME leave
[epoch=n] [shutdown]`, `created [NAME] TOPIC=CODE[:words] ...` (how the CreateTopics of NAME, else of m1, ended), `sleep
MS`, `finish` (offloaded runs end), `fail` (they fail), `takeover [lost] [clock=ms]` (its wall clock is so much ahead),
`group`, `since NAME`, `describe`, `delete`, `rebalance REASON`, `release [stop]`, `taken-in epoch=n m1=TASKS ...`,
`commit NAME [epoch=n] [version=n] [txn] in:0 ...`, `fetch NAME [epoch=n]`, `standing`. TASKS are `0:0,1;1:0+1:1`:
active ones, then standby ones. A member `waits` whose answer comes with a later line. `#` begins a comment.
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
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.streams.adoption import AdoptStreams, NativeStreamsMember
from sidecar.core.streams.events import (
    DescribeStreamsGroup,
    StreamsDescribeReply,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TopicsCreated,
)
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.records import Kind
from sidecar.core.streams.tasks import AssignedTasks, Partitions, Tasks
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code
from tests.core.storybook import check, stories
from tests.core.streams.world import TOPOLOGY, World, as_ids

STORIES = stories("streams")
GROUP = "g"
Options = dict[str, str]
WHY = "the administrator wants it"


def show_part(part: Partitions) -> str:
    return ";".join(f"{s}:{','.join(map(str, ps))}" for s, ps in sorted(part.items()) if ps)


def show(tasks: Tasks) -> str:
    parts = [show_part(tasks.active), show_part(tasks.standby), show_part(tasks.warmup)]
    while parts and not parts[-1]:
        parts.pop()
    return "+".join(parts) or "nothing"


def read(text: str) -> Tasks:
    parts: list[dict[str, tuple[int, ...]]] = []
    for part in text.replace("nothing", "").split("+"):
        pairs = (p.split(":") for p in part.split(";") if p)
        parts.append({s: tuple(int(n) for n in numbers.split(",")) for s, numbers in pairs})
    return Tasks(*parts)


def subtopology(text: str) -> Subtopology:
    """`id:sources>sinks<repartition sources!changelogs*copartitioned`"""
    name, _, rest = text.partition(":")
    rest, _, together = rest.partition("*")
    rest, _, changelogs = rest.partition("!")
    rest, _, reads = rest.partition("<")
    sources, _, sinks = rest.partition(">")
    split: Callable[[str], tuple[str, ...]] = lambda t: tuple(filter(None, t.split(",")))  # noqa: E731
    infos = tuple(TopicInfo(n, int(c or 0)) for n, _, c in (t.partition("=") for t in split(reads)))
    s = Subtopology(name, split(sources), split(sinks), infos, tuple(map(TopicInfo, split(changelogs))))
    if together:
        groups = (CopartitionGroup(tuple(range(len(s.source_topics))), tuple(range(len(infos)))),)
        s = replace(s, copartition_groups=groups)
    return s


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.epochs: dict[str, int] = {}
        self.tasks: dict[str, Tasks] = {}
        self.endpoint_epochs: dict[str, int] = {}
        self.instances: dict[str, str] = {}
        self.topologies: dict[str, Topology] = {"app": TOPOLOGY}
        self.pending: dict[int, str] = {}
        """Requests that wait for an answer: token -> name."""

    # ---- words --------------------------------------------------------------------------------------------
    def answer(self, who: str, reply: Answer) -> list[str]:
        assert isinstance(reply, StreamsHeartbeatReply)
        if reply.code:
            return [f"{who}: {Code(reply.code).name}: {reply.message}"]
        self.epochs[who] = reply.member_epoch
        text = f"{who}: epoch {reply.member_epoch}"
        if reply.active_tasks is not None:
            assert reply.standby_tasks is not None and reply.warmup_tasks is not None
            self.tasks[who] = Tasks(reply.active_tasks, reply.standby_tasks, reply.warmup_tasks)
            text += f", assigned {show(self.tasks[who])}"
        out = [text]
        self.endpoint_epochs[who] = reply.endpoint_epoch
        if reply.partitions_by_endpoint:
            for (host, port), active, standby in reply.partitions_by_endpoint:
                out.append(f"  {host}:{port} serves {show(Tasks(active, standby))}")
        out += [f"  status {int(s.code)}: {s.detail}" for s in reply.status]
        out += [
            f"  create {t.name} {t.partitions} {t.replication_factor} {dict(t.configs) or ''}".rstrip()
            for t in reply.create
        ]
        return out

    def released(self) -> list[str]:
        """Answers that have come to requests of earlier lines."""
        due = [t for t in self.pending if t in self.world.replies]
        return [line for t in due for line in self.answer(self.pending.pop(t), self.world.replies.pop(t).answer)]

    def run(self, line: str) -> list[str]:
        words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        if words[0] == "event":
            return self.world.pasted(line)
        command = COMMANDS.get(words[0])
        told = command(self, words[1:], options) if command else self.member(words[0], words[1:], options)
        return [*told, *self.released()]

    # ---- members ------------------------------------------------------------------------------------------
    def member(self, who: str, words: list[str], options: Options) -> list[str]:
        hb = self.beat(who, words, options)
        token = self.world.request(hb)
        if token not in self.world.replies:
            self.pending[token] = who
            return [f"{who}: waits"]
        reply = self.world.replies.pop(token)
        if "lost" in words:
            return [f"{who}: the answer is lost"]
        out = self.answer(who, reply.answer)
        return [*out, "  remembered"] if reply.grant is not None else out

    def beat(self, who: str, words: list[str], options: Options) -> StreamsHeartbeat:
        verb = words[0]
        epoch = {"join": 0, "leave": -1}.get(verb, self.epochs.get(who, 0))
        if "instance" in options:
            self.instances[who] = options["instance"]
        hb = StreamsHeartbeat(
            options.get("group", GROUP),
            options.get("id", who),
            int(options.get("epoch", epoch)),
            endpoint_epoch=int(options.get("endpoint-epoch", self.endpoint_epochs.get(who, -1))),
            instance_id=self.instances.get(who),
            rack_id=options.get("rack"),
            shutdown_application="shutdown" in words,
            client_id=who,
            client_host="/h",
            version=0 if "v0" in words else 1,
        )
        if verb == "join":
            topology = self.topologies[options.get("topology", "app")]
            timeout = int(options.get("timeout", 30_000))
            process = options.get("process", f"p-{who}")
            hb = replace(hb, topology=topology, rebalance_timeout_ms=timeout, process_id=process, endpoint_epoch=-1)
            hb = replace(hb, active_tasks=(), standby_tasks=(), warmup_tasks=())
        elif "timeout" in options:
            hb = replace(hb, rebalance_timeout_ms=int(options["timeout"]))
        if "endpoint" in options:
            host, _, port = options["endpoint"].partition(":")
            hb = replace(hb, endpoint=(host, int(port)))
        if "tags" in options:
            key, _, value = options["tags"].partition(":")
            hb = replace(hb, client_tags=((key, value),))
        if "owns" in words or "owns" in options:
            owns = read(options["owns"]) if "owns" in options else self.tasks.get(who, Tasks())
            hb = replace(hb, active_tasks=as_ids(owns.active), standby_tasks=as_ids(owns.standby))
            hb = replace(hb, warmup_tasks=as_ids(owns.warmup))
        if "offsets" in options:
            told = (one.split(":") for one in options["offsets"].split(","))
            hb = replace(hb, task_offsets=tuple((s, int(p), int(n)) for s, p, n in told))
        if "without" in options:
            hb = replace(hb, **{options["without"]: None})
        if "wrong" in options:
            name, _, value = options["wrong"].partition(":")
            hb = replace(hb, **{name: (("0", (int(value),)),) if name.endswith("tasks") else " "})
        return hb

    # ---- the group ----------------------------------------------------------------------------------------
    def topics(self, words: list[str], options: Options) -> list[str]:
        self.world.topics(**{n: int(c) for n, c in options.items()})
        return []

    def grow(self, words: list[str], options: Options) -> list[str]:
        self.world.grow({n: int(c) for n, c in options.items()})
        return []

    def config(self, words: list[str], options: Options) -> list[str]:
        known: dict[str, Any] = {}
        for name, text in options.items():
            now = getattr(self.world.config, name)
            known[name] = (text,) if isinstance(now, tuple) else text == "true" if isinstance(now, bool) else int(text)
        self.world.config = replace_config(self.world.config, **known)
        return []

    def topology(self, words: list[str], options: Options) -> list[str]:
        name, _, epoch = words[0].partition("@")
        self.topologies[name] = Topology(int(epoch or 1), tuple(map(subtopology, words[1:])))
        return []

    def created(self, words: list[str], options: Options) -> list[str]:
        pairs = ((n, *c.partition(":")[::2]) for n, c in options.items())
        told = tuple((n, int(c) if c.isdigit() else Code[c], text or None) for n, c, text in pairs)
        looks = len(self.world.looks)
        asker = next((w for w in words if "=" not in w), "m1")
        out = self.plain(TopicsCreated(GROUP, asker, told))
        return out + [f"looks at {', '.join(look.names or ())}" for look in self.world.looks[looks:]]

    def sleep(self, words: list[str], options: Options) -> list[str]:
        group = self.world.shard.groups.get(GROUP)
        before, at = set(group.member_ids()) if group else set(), len(self.world.log)
        self.world.sleep(int(words[0]))
        gone = sorted(before - set(group.member_ids() if group else ()))
        log = self.world.log[at:]
        why = {r.sub_id: r.why for r in log if r.kind == Kind.MEMBER}
        out = [f"{m} removed: {why[m]}" for m in gone]
        return out + [f"written: {r.why}" for r in log if r.kind == Kind.TARGET_METADATA]

    def finish(self, words: list[str], options: Options, error: str = "") -> list[str]:
        at = len(self.world.log)
        self.world.finish(error)
        whys = [r.why for r in self.world.log[at:] if r.kind == Kind.TARGET_METADATA]
        return [f"written: {why}" for why in whys] or ["nothing written"]

    def takeover(self, words: list[str], options: Options) -> list[str]:
        self.pending.clear()
        self.world.clock_ms = int(options.get("clock", "0"))
        self.world.takeover(lost="lost" in words)
        self.world.sleep(1, 1)
        return []

    def group(self, words: list[str], options: Options) -> list[str]:
        group = self.world.shard.groups.get(GROUP)
        if not isinstance(group, StreamsGroup):
            return ["no such group" if group is None else f"a {group.kind} group"]
        out = [f"{group.state()}, group epoch {group.epoch}, assignment epoch {group.assignment_epoch}"]
        for m in group.members.values():
            who = m.member_id + (f" ({m.instance_id})" if m.instance_id else "")
            out.append(f"  {who} epoch {m.member_epoch} {m.state}: has {show(m.assigned.without_epochs())}")
            if m.pending:
                out[-1] += f", gives up {show(m.pending.without_epochs())}"
            out[-1] += f", target {show(group.target_of(m.member_id))}"
        return out

    def since(self, words: list[str], options: Options) -> list[str]:
        """Epochs at which active tasks were assigned."""
        tasks: AssignedTasks = self.world.group().members[words[0]].assigned
        return [f"{s}-{p} since {e}" for s, ps in tasks.active.items() for p, e in ps.items()]

    def describe(self, words: list[str], options: Options) -> list[str]:
        reply = self.world.ask(DescribeStreamsGroup(GROUP))
        assert isinstance(reply, StreamsDescribeReply)
        if reply.code:
            return [f"{Code(reply.code).name}: {reply.message}"]
        out = [f"{reply.state}, epoch {reply.epoch}/{reply.assignment_epoch}, {reply.assignor}"]
        for s in reply.topology.subtopologies if reply.topology else ():
            infos = [f"{t.name}={t.partitions}" for t in (*s.repartition_source_topics, *s.changelog_topics)]
            out.append(f"  {s.subtopology_id}: {s.source_topics} > {s.repartition_sink_topics}, {infos}")
        for m in reply.members:
            out.append(
                f"  {m.member_id} {m.member_epoch} {m.instance_id} {m.rack_id} {m.client_id} {m.client_host} "
                f"{m.topology_epoch} {m.process_id} {m.endpoint} {m.client_tags}: "
                f"{show(m.assignment)}, target {show(m.target)}"
                + (f", offsets {m.offsets} {m.end_offsets}" if m.offsets or m.end_offsets else "")
            )
        return out

    def plain(self, event: Event) -> list[str]:
        """The code of the answer, and what else there is to it."""
        reply = self.world.ask(event)
        if reply.code:
            return [f"{Code(reply.code).name}: {reply.message}"]
        if isinstance(reply, DeletionCheckReply):
            return [f"{reply.kind} group of {reply.members}, subscribed to {', '.join(sorted(reply.subscribed))}"]
        return [f"{reply.members} members"] if isinstance(reply, ReleaseReply) else [Code(reply.code).name]

    def taken_in(self, words: list[str], options: Options) -> list[str]:
        epoch, natives = int(options.pop("epoch")), []
        topology = self.topologies[options.pop("topology", "app")]
        for who, text in options.items():
            self.epochs[who], self.tasks[who] = epoch, read(text)
            who_ = (who, None, None, epoch, who, "/h", topology.epoch, f"p-{who}", None, ())
            natives.append(NativeStreamsMember(*who_, read(text)))
        return self.plain(AdoptStreams(GROUP, epoch, epoch, "sticky", topology, tuple(natives), 300_000, "moved"))

    def commit(self, words: list[str], options: Options) -> list[str]:
        places = tuple((w.split(":")[0], bytes(16), int(w.split(":")[1])) for w in words if ":" in w)
        who, version = words[0], int(options.get("version", 9))
        epoch = int(options.get("epoch", self.epochs.get(who, -1)))
        member_id = "" if who == "nobody" else who
        return self.plain(CommitCheck(GROUP, member_id, epoch, None, version, "txn" in words, places))

    def fetch(self, words: list[str], options: Options) -> list[str]:
        who = None if words[0] == "nobody" else words[0]
        return self.plain(FetchCheck(GROUP, who, int(options.get("epoch", self.epochs.get(words[0], -1)))))


COMMANDS: dict[str, Callable[[Story, list[str], Options], list[str]]] = {
    "topics": Story.topics,
    "grow": Story.grow,
    "config": Story.config,
    "topology": Story.topology,
    "created": Story.created,
    "sleep": Story.sleep,
    "finish": Story.finish,
    "fail": lambda story, words, options: story.finish(words, options, "injected"),
    "takeover": Story.takeover,
    "group": Story.group,
    "since": Story.since,
    "describe": Story.describe,
    "taken-in": Story.taken_in,
    "delete": lambda story, words, options: story.plain(DeleteGroup(GROUP)),
    "rebalance": lambda story, words, options: story.plain(Rebalance(GROUP, " ".join(words))),
    "release": lambda story, words, options: story.plain(ReleaseGroup(GROUP, WHY, words == ["stop"])),
    "standing": lambda story, words, options: story.plain(DeletionCheck(GROUP)),
    "commit": Story.commit,
    "fetch": Story.fetch,
}


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, Story().run, request.config.getoption("--rewrite"))
