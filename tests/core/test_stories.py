"""Conversations with the coordinator: the *.txt of four folders of tests/stories hold
commands and the exact answers: consumer, classic, migration (between these two protocols) and moves (between broker
and sidecars).

    pytest tests/core/test_stories.py --rewrite      # then read the diff; never commit one you cannot explain

Commands: `topics NAME=PARTITIONS[@RACK][!ID] ...`, `config KEY=VALUE ...`, `authorizer` (the broker has one),
`NAME join [names=a,b] [regex=r] [...]`, `NAME heartbeat [epoch=n] [owned=a:0,1] ...`, `NAME leave [epoch=-2]`,
`NAME commit|fetch epoch=n`, `sleep MS`, `pass MS` (timers do not run), `clock MS` (the wall clock jumps),
`resolve [unheard]` (or the client of the request that asked is gone), `finish` (offloaded runs end), `fail` (they
fail), `takeover [lost]` (what the last event wrote did not reach the log), `delete`, `group`.
A member acknowledges what it was last told, unless `owned=` says otherwise. A member `waits` whose answer comes with
a later line. `#` begins a comment.

Members of classic groups: `NAME join-group [protocols=range,coop] [topics=a,b] [owned=a:0,1 [of=GENERATION]]
[instance=i] [version=n] [session=ms] [rebalance=ms] [type=t] [host=h] [id=] [reason=r]`,
`NAME sync-group [m1=a:0 m2=nothing]`, `NAME beat`, `NAME leave-group`, `NAME commit [gen=n] [places=a:0;b:1]`, and of
an administrator `remove INSTANCE|INSTANCE/ID|/ID ...`, `rebalance REASON`, `release [stop]` (the group goes back to the
broker, or stays after all), `taken-in gen=n m1=a:0 ...` and `taken-in epoch=n m1=a:0 ...` (a classic or a consumer
group comes from the broker as it is there);
`describe` (DescribeGroups), `list` (ListGroups), `standing` (what is asked before offsets go).
`protocols=range:text` gives a protocol bytes of its own; without, all say the consumer's subscription. A name that is
assigned something is another member's. What is left out is what the member said last, or what it was told: its id, its
generation, the protocol. `id=`, `gen=`, `instance=`, `protocol=`, `type=` say something else once, and a refusal of
that is not taken to heart; `join-group id=` is a client that was restarted. A member that is given an id and asked to
come again does so at once, but with `id=`. In the place of UUIDs, member ids have numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace as replace_config
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.core.classic.adoption import AdoptClassic
from sidecar.core.classic.embedded import CONSUMER_TYPE
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.adoption import AdoptConsumer, NativeConsumer
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.events import Answer, DeleteGroup, Event, Rebalance, ReleaseGroup, ReleaseReply
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.errors import Code
from tests.core.story_classic import ClassicWords
from tests.core.storybook import OF_MEMBERS, check, stories
from tests.core.world import World, topic, topic_id

ROOT = Path(__file__).parent.parent.parent
STORIES = stories(*OF_MEMBERS)
GROUP = "g"


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.ids: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Partitions] = {}
        self.instances: dict[str, str] = {}
        self.pending: dict[int, Callable[[Answer], str]] = {}
        """Requests that wait for an answer: token -> the line when it comes."""
        self.classic = ClassicWords(self.world, GROUP)

    # ---- words --------------------------------------------------------------------------------------------
    def show(self, parts: Partitions) -> str:
        names = {topic_id(i): n for n, i in self.ids.items()}
        told = [f"{names.get(t, t.hex())}:{','.join(map(str, ps))}" for t, ps in sorted(parts.items()) if ps]
        return " ".join(told) or "nothing"

    def read(self, text: str) -> Partitions:
        found: dict[bytes, tuple[int, ...]] = {}
        for part in filter(None, text.split(";")):
            name, _, numbers = part.partition(":")
            found[topic_id(self.ids[name])] = tuple(int(n) for n in numbers.split(",") if n)
        return found

    def answer(self, who: str, reply: Answer) -> str:
        assert isinstance(reply, HeartbeatReply)
        if reply.code:
            return f"{who}: {Code(reply.code).name}: {reply.message}"
        self.epochs[who] = reply.member_epoch
        text = f"{who}: epoch {reply.member_epoch}"
        if reply.heartbeat_interval_ms:
            text += f", heartbeat every {reply.heartbeat_interval_ms} ms"
        if reply.assignment is not None:
            self.owned[who] = reply.assignment
            text += f", assigned {self.show(reply.assignment)}"
        return text

    # ---- commands -----------------------------------------------------------------------------------------
    def run(self, line: str) -> list[str]:
        """The answers to one line, and to whoever waited and is answered by it."""
        words = line.split()
        options = dict(w.split("=", 1) for w in words if "=" in w)
        command = COMMANDS.get(words[0])
        if words[0] == "event":
            told = self.world.pasted(line)
        elif command is not None:
            told = command(self, words[1:], options)
        elif words[1] in CLASSIC_WAITS:
            told = [self.answer_line(words[0], *CLASSIC_WAITS[words[1]](self.classic, words[0], options))]
        elif words[1] in CLASSIC and (words[1] != "commit" or "gen" in options or words[0] in self.classic.clients):
            told = [CLASSIC[words[1]](self.classic, words[0], options)]
        elif words[1] in ("commit", "fetch"):
            told = [self.offsets(words[0], words[1], options)]
        else:
            told = [self.member(words[0], words[1], options)]
        return told + self.released() + self.classic.reported()

    def released(self) -> list[str]:
        """Returns the lines of answers to earlier requests that have come since."""
        due = [t for t in self.pending if t in self.world.replies]
        return [self.pending.pop(t)(self.world.replies.pop(t).answer) for t in due]

    def answer_line(self, who: str, token: int, to_line: Callable[[Answer], str]) -> str:
        """Returns the line of the answer, or `waits`: then `released` prints the line when the answer comes."""
        if token in self.world.replies:
            return to_line(self.world.replies.pop(token).answer)
        self.pending[token] = to_line
        return f"{who}: waits"

    def topics(self, words: list[str], options: dict[str, str]) -> list[str]:
        made = []
        for name, text in options.items():
            count, _, new_id = text.partition("!")
            count, _, rack = count.partition("@")
            self.ids.setdefault(name, len(self.ids) + 1)
            if new_id:
                self.ids[name] = int(new_id)
            made.append(topic(self.ids[name], name, int(count), rack))
        self.world.topics(*made)
        return []

    def config(self, words: list[str], options: dict[str, str]) -> list[str]:
        known: dict[str, Any] = {k: self.value(k, v) for k, v in options.items()}
        classic = {k.removeprefix("classic."): known.pop(k) for k in options if k.startswith("classic.")}
        self.world.config = replace_config(self.world.config, **known)
        self.world.classic = replace_config(self.world.classic, **classic)
        return []

    def authorizer(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.world.asks_access = True
        return []

    def sleep(self, words: list[str], options: dict[str, str]) -> list[str]:
        before = self.world.member_ids(GROUP)
        at = len(self.world.log)
        self.world.sleep(int(words[0]))
        gone = sorted(before - self.world.member_ids(GROUP))
        why = {r.sub_id: r.why for r in self.world.log[at:] if r.kind in ("member", "classic_member")}
        return [f"{m} removed: {why[m]}" for m in gone]

    def let_pass(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.world.now_ms += int(words[0])
        return []

    def clock(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.world.skew_ms += int(words[0])
        return []

    def resolve(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.world.resolve(heard=words != ["unheard"])
        return []

    def finish(self, words: list[str], options: dict[str, str], error: str = "") -> list[str]:
        at = len(self.world.log)
        self.world.finish(error)
        whys = [r.why for r in self.world.log[at:] if r.kind == "target_metadata"]
        return [f"written: {why}" for why in whys] or ["nothing written"]

    def fail(self, words: list[str], options: dict[str, str]) -> list[str]:
        return self.finish(words, options, "injected")

    def delete(self, words: list[str], options: dict[str, str]) -> list[str]:
        return [self.world.ask(DeleteGroup(GROUP)).code.name]

    def takeover(self, words: list[str], options: dict[str, str]) -> list[str]:
        self.world.running.clear()
        self.world.asked.clear()
        self.pending.clear()
        if words == ["lost"]:
            self.world.lose()
        self.world.shard = self.world.rebuilt()
        return []

    def value(self, key: str, text: str) -> object:
        if key == "assignors":
            return tuple(text.split(","))
        if key in ("classic.stale_claims", "migration_policy"):
            return text
        return text == "true" if text in ("true", "false") else int(text)

    def describe(self, words: list[str], options: dict[str, str]) -> list[str]:
        if GROUP not in self.world.shard.groups:
            return ["no such group"]
        known = self.world.shard.groups[GROUP]
        if isinstance(known, ClassicGroup):
            return self.classic.group(known)
        group = self.world.group(GROUP)
        out = [f"{group.state()}, group epoch {group.epoch}, assignment epoch {group.assignment_epoch}"]
        for m in group.members.values():
            pending = {t: tuple(sorted(ps)) for t, ps in m.pending.items()}
            who = m.member_id + (" (classic)" if m.classic is not None else "")
            line = f"  {who} {m.state} epoch {m.member_epoch}: has {self.show(m.assigned_partitions())}"
            line += f", gives up {self.show(pending)}" if pending else ""
            out.append(line + f", target {self.show(group.target.of(m.member_id))}")
        return out

    def offsets(self, who: str, verb: str, options: dict[str, str]) -> str:
        epoch = int(options.get("epoch", self.epochs.get(who, -1)))
        if verb == "fetch":
            reply = self.world.ask(FetchCheck(GROUP, who, epoch))
        else:
            places = tuple((n, topic_id(self.ids[n]), p) for n in self.ids for p in (0, 1))
            transactional = options.get("transactional") == "true"
            version = int(options.get("version", 5 if transactional else 9))
            check = CommitCheck(GROUP, who, epoch, None, version, transactional, places)
            reply = self.world.ask(check)
        assert isinstance(reply, CheckReply)
        return f"{who}: {Code(reply.code).name}"

    def member(self, who: str, verb: str, options: dict[str, str]) -> str:
        hb = ConsumerHeartbeat(options.get("group", GROUP), options.get("id", who), self.epochs.get(who, 0))
        if verb == "join":
            self.instances[who] = options.get("instance", "")
            names = tuple(filter(None, options["names"].split(","))) if "names" in options else None
            hb = replace(
                hb, member_epoch=0, rebalance_timeout_ms=int(options.get("timeout", 30_000)), topic_names=names
            )
            hb = replace(hb, topic_regex=options.get("regex"), server_assignor=options.get("assignor"), owned={})
        elif verb == "leave":
            hb = replace(hb, member_epoch=-1)
        else:
            hb = replace(hb, owned=self.owned.get(who, {}))
            if "names" in options:
                hb = replace(hb, topic_names=tuple(filter(None, options["names"].split(","))))
            for key, name in (("regex", "topic_regex"), ("assignor", "server_assignor")):
                if key in options:
                    hb = replace(hb, **{name: options[key]})
        hb = replace(hb, instance_id=self.instances.get(who) or None, version=int(options.get("version", 1)))
        if "epoch" in options:
            hb = replace(hb, member_epoch=int(options["epoch"]))
        if "owned" in options:
            hb = replace(hb, owned=None if options["owned"] == "none" else self.read(options["owned"]))
        for key, name in (("instance", "instance_id"), ("rack", "rack_id")):
            if key in options:
                hb = replace(hb, **{name: options[key]})
        if "timeout" in options:
            hb = replace(hb, rebalance_timeout_ms=int(options["timeout"]))
        return self.answer_line(who, self.world.request(hb), lambda reply: self.answer(who, reply))


def rebalance(story: Story, words: list[str], options: dict[str, str]) -> list[str]:
    return [story.world.ask(Rebalance(GROUP, " ".join(words))).code.name]


def release(story: Story, words: list[str], options: dict[str, str]) -> list[str]:
    reply = story.world.ask(ReleaseGroup(GROUP, "the administrator wants it", words == ["stop"]))
    assert isinstance(reply, ReleaseReply)
    return [reply.code.name if reply.code else f"{reply.members} members"]


def taken_in(story: Story, words: list[str], options: dict[str, str]) -> list[str]:
    why = "taken over from the broker"
    if "gen" in options:
        generation = int(options.pop("gen"))
        natives = tuple(story.classic.native(who, parts, generation) for who, parts in options.items())
        event: Event = AdoptClassic(GROUP, CONSUMER_TYPE, "range", natives, 45_000, 300_000, why)
        return [story.world.ask(event).code.name]
    epoch = int(options.pop("epoch"))
    members = []
    for who, parts in options.items():
        instance = story.instances.get(who) or None
        owned = story.read(parts) if parts != "nothing" else {}
        story.epochs[who], story.owned[who] = epoch, owned
        members.append(NativeConsumer(who, instance, None, who, "/h", ("a",), "", owned))
    names = {topic_id(i): n for n, i in story.ids.items()}
    event = AdoptConsumer(GROUP, epoch, "uniform", tuple(members), names, 30_000, why)
    return [story.world.ask(event).code.name]


COMMANDS: dict[str, Callable[[Story, list[str], dict[str, str]], list[str]]] = {
    "topics": Story.topics,
    "config": Story.config,
    "authorizer": Story.authorizer,
    "sleep": Story.sleep,
    "pass": Story.let_pass,
    "clock": Story.clock,
    "resolve": Story.resolve,
    "finish": Story.finish,
    "fail": Story.fail,
    "delete": Story.delete,
    "takeover": Story.takeover,
    "group": Story.describe,
    "rebalance": rebalance,
    "release": release,
    "taken-in": taken_in,
    "remove": lambda story, words, options: story.classic.remove(words),
    "describe": lambda story, words, options: story.classic.describe(),
    "list": lambda story, words, options: story.classic.listed(),
    "standing": lambda story, words, options: story.classic.deletion_check(),
}
CLASSIC_WAITS = {"join-group": ClassicWords.join, "sync-group": ClassicWords.sync}
CLASSIC = {"beat": ClassicWords.beat, "leave-group": ClassicWords.leave, "commit": ClassicWords.commit}
"""Verbs of members of classic groups; the first ones may wait."""


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    check(path, Story().run, request.config.getoption("--rewrite"))


ELSEWHERE = {
    "1.27": "tests/api/test_list_groups.py::test_filters",
    "1.32": "tests/api/test_offset_fetch.py::test_one_group_goes_on_as_it_is",
    "2.27": "tests/clients/test_access.py::test_groups",
    "2.28": "tests/api/test_api_versions.py",
    "2.29": "tests/clients/test_group_configs.py",
    "3.7": "tests/coordinator/runtime/test_background.py::test_a_busy_thread_is_not_idle",
    "3.8": "tests/coordinator/runtime/test_background.py::test_results_and_errors_come_back_and_are_measured",
    "6.1": "tests/core/test_placement.py::test_partition_for_the_one_string_whose_abs_overflows",
    "6.2": "tests/coordinator/runtime/test_coordinator.py::test_a_takeover_that_takes_too_long_is_no_reason_to_wait",
    "6.7": "tests/coordinator/runtime/test_coordinator.py::test_who_only_asks_hears_nothing_that_is_not_committed",
    "6.8": "tests/core/test_timers.py::test_what_is_done_about_one_timer_may_move_or_cancel_later_ones",
    "6.10": "tests/coordinator/statelog/test_fenced_writer.py::test_a_batch_refused_for_now_is_sent_again_as_it_was",
    "6.12": "tests/core/test_partial_logs.py::test_a_record_may_be_alone_or_missing",
    "6.15": "tests/state/test_schemas.py::test_each_file_is_pinned",
}
"""Rows that need a broker or threads, or are about what handlers say."""
DIFFERENT = {"1.34", "1.35", "6.4", "6.6", "6.11", "6.13", "6.14"}
"""Rows that are the brokers' own work, or not done; docs/reference/differences.md names each."""


def test_each_row_of_the_behaviour_checklist_has_a_story() -> None:
    """Sections 1, 2, 3 and 6 of docs/reference/behaviour.md."""
    told = {row for path in STORIES for row in re.findall(r"\b[1236]\.\d+\b", rows_of(path.read_text()))}
    wanted = {*(f"1.{n}" for n in range(1, 40)), *(f"2.{n}" for n in range(1, 30))}
    wanted |= {*(f"3.{n}" for n in range(1, 11)), "3.12", *(f"6.{n}" for n in range(1, 16))}
    assert told | ELSEWHERE.keys() | DIFFERENT == wanted
    assert not told & DIFFERENT and not ELSEWHERE.keys() & DIFFERENT
    differences = (ROOT / "docs/reference/differences.md").read_text()
    assert all(re.search(rf"(?<![\d.]){re.escape(row)}(?!\d)", differences) for row in DIFFERENT)
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text() if name else (ROOT / path).exists(), place


def sentences() -> list[tuple[str, list[str], str]]:
    """(sentence, where it is shown, the row of docs/reference/differences.md if it is not so, or not yet) of
    tests/stories/README.md."""
    found = []
    for line in (ROOT / "tests/stories/README.md").read_text().splitlines():
        if line.startswith("- "):
            said, arrow, where = line[2:].rpartition(" -> ")
            assert arrow, line
            later = where.partition("not yet: ")[2] or where.partition("otherwise: ")[2]
            found.append((said, [] if later else where.split(", "), later))
    return found


def comments(path: Path) -> str:
    lines = [line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#")]
    return " ".join(lines).replace("`", "")


@pytest.mark.parametrize(("said", "where", "later"), sentences(), ids=lambda v: v if isinstance(v, str) else "")
def test_each_sentence_of_the_kips_has_a_story_that_quotes_it(said: str, where: list[str], later: str) -> None:
    told = {p.stem.partition("_")[0]: p for p in STORIES}
    quoted = said.startswith('"')
    for place in where:
        path, _, name = place.partition("::")
        assert place in told or (ROOT / path).exists(), place
        assert not name or f"def {name}(" in (ROOT / path).read_text(), place
        if quoted and place in told:
            assert said.strip('"') in comments(told[place]), f"{told[place].name} does not say it"
    if later:
        assert later in (ROOT / "docs/reference/differences.md").read_text()


def test_each_story_shows_something_of_the_kips() -> None:
    used = {place for _, where, _ in sentences() for place in where}
    assert {p.stem.partition("_")[0] for p in STORIES} <= used


def rows_of(text: str) -> str:
    return " ".join(
        line.partition("Rows:")[2] for line in text.splitlines() if line.startswith("#") and "Rows:" in line
    )
