"""The scenarios: each decides what a client must do with its group to earn a "yes", and says what was missing if not.

A scenario has a topic and a group of its own, and a steady feed to the topic. It knows members and no language.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.matrix.build import Program
from tests.matrix.cluster import PARTITIONS, Cluster
from tests.matrix.member import Member, held_twice, missing, repeated
from tests.matrix.table import Client

ALL = set(range(PARTITIONS))
WAIT_S = OWNER_S = 120.0
"""Limits of a wait that are no part of the verdict."""
QUIET_S = 2.5
"""Time in which the other member must see no rebalance: more than two heartbeats."""
BACK_AFTER_S = 4.0
ERROR_CHARS = 120
"""Longest error text in a footnote."""
SESSION_MS, HEARTBEAT_MS = 45_000, 1_000
"""A session is so long that a slow machine does not end it: no scenario needs one to end."""


class Failed(Exception):
    """The client did not do what the scenario asks; the text says what was missing."""


def topic_name(cluster: Cluster, client: Client, scenario: str) -> str:
    return "topic." + cluster.group(f"{client.name}.{scenario}")


class Play:
    """One scenario of one client: its topic, its group, its feed and its members."""

    def __init__(self, cluster: Cluster, client: Client, program: Program, scenario: str) -> None:
        self.cluster, self.client, self.program = cluster, client, program
        self.group = cluster.group(f"{client.name}.{scenario}")
        self.topic = cluster.topic(topic_name(cluster, client, scenario))
        self.folder = cluster.kafka.folder / client.name / (scenario + "-direct" * cluster.direct)
        self.feed = cluster.feed(self.topic).start()
        self.members: list[Member] = []

    def start(self, name: str, instance: str = "") -> Member:
        # fmt: off
        options = [
            "--bootstrap", self.cluster.bootstrap, "--group", self.group, "--topic", self.topic,
            "--name", f"{self.client.name}-{name}", "--session-ms", str(SESSION_MS),
            "--heartbeat-ms", str(HEARTBEAT_MS), *self.client.options,
        ]
        # fmt: on
        if instance:
            options += ["--instance", instance]
        member = Member(name, self.program, options, self.folder).start()
        self.members.append(member)
        return member

    def wait(self, what: str, check: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        until = time.monotonic() + timeout_s
        while not check():
            for m in self.members:
                code = m.process.returncode
                if code is not None and not m.asked:
                    raise Failed(f"{what}: a member ended by itself ({code}){self.last_errors()}")
            if time.monotonic() > until:
                raise Failed(f"{what}: not within {timeout_s:g} s{self.last_errors()}")
            time.sleep(0.05)

    def last_errors(self) -> str:
        """Return the last error of each member, short enough for a footnote."""
        last = (e for m in self.members for e in m.journal.errors[-1:])
        said = dict.fromkeys(e if len(e) <= ERROR_CHARS else e[:ERROR_CHARS].rsplit(" ", 1)[0] + " ..." for e in last)
        return "; the client says: " + " / ".join(said) if said else ""

    def fresh(self, *members: Member) -> None:
        """Wait until these members have consumed two new records of each partition that they hold."""
        marks = {m: {p: m.journal.last(p) for p in ALL} for m in members}

        def consumed() -> bool:
            return all(
                len(m.journal.consumed.get(p, ())) >= 2 and m.journal.last(p) >= mark[p] + 2
                for m, mark in marks.items()
                for p in m.journal.held()
            )

        self.wait("new records of every partition held", consumed)

    def wait_for_all_partitions(self, member: Member) -> None:
        self.wait("one member with all partitions", lambda: member.journal.held() == ALL)
        self.fresh(member)

    def shared(self, a: Member, b: Member) -> None:
        def disjoint() -> bool:
            x, y = a.journal.held(), b.journal.held()
            return bool(x) and bool(y) and not x & y and x | y == ALL

        self.wait("two members sharing all partitions", disjoint)
        self.fresh(a, b)

    def consume_all(self) -> None:
        """Stop the feed and wait until every record is consumed."""
        self.feed.stop()
        journals = [m.journal for m in self.members]
        self.wait("every record consumed", lambda: missing(self.feed.ends, journals) == 0)

    def judge(self) -> None:
        """Look at what must hold in every scenario, while the members are still there."""
        here, there = ("a broker", "no broker") if not self.cluster.direct else ("no broker", "a broker")
        if self.cluster.at_brokers(self.group + self.client.offsets, self.client.name) != self.cluster.direct:
            raise Failed(f"{here} coordinates the group, but {there} should")
        found = held_twice(m.journal for m in self.members)
        if found:
            raise Failed("held twice: " + "; ".join(found[:2]))

    def end(self) -> None:
        for m in self.members:
            m.kill()
        self.feed.stop()


def join(play: Play) -> None:
    play.wait_for_all_partitions(play.start("a"))
    play.consume_all()
    play.judge()


def rebalance(play: Play) -> None:
    a = play.start("a")
    play.wait_for_all_partitions(a)
    b = play.start("b")
    play.shared(a, b)
    b.close()
    play.wait_for_all_partitions(a)
    play.consume_all()
    play.judge()


def static(play: Play) -> None:
    a, b = play.start("a", "one"), play.start("b", "two")
    play.shared(a, b)
    time.sleep(HEARTBEAT_MS / 1000)
    seen, held = b.journal.rebalances, a.journal.held()
    a.close()
    again = play.start("a-again", "one")

    def rebalanced_since() -> bool:
        return b.journal.rebalances != seen

    play.wait("the restarted member with its partitions", lambda: again.journal.held() == held or rebalanced_since())
    if not rebalanced_since():
        play.fresh(again, b)
        time.sleep(QUIET_S)
    if rebalanced_since():
        raise Failed(f"the other member was told of a change{play.last_errors()}")
    play.consume_all()
    play.judge()


def resume(play: Play) -> None:
    a = play.start("a")
    play.wait_for_all_partitions(a)
    a.close()
    committed = play.cluster.committed(play.group + play.client.offsets, play.topic)
    for p in sorted(ALL):
        if committed.get(p) != a.journal.last(p) + 1:
            raise Failed(f"partition {p}: consumed to {a.journal.last(p)}, but {committed.get(p)} was committed")
    time.sleep(0.5)
    again = play.start("a-again")
    play.wait_for_all_partitions(again)
    play.consume_all()
    for p in sorted(ALL):
        first = again.journal.consumed[p][0]
        if first != committed[p]:
            raise Failed(f"partition {p}: resumed at {first}, but {committed[p]} was committed")
    twice = repeated(m.journal for m in play.members)
    if twice:
        raise Failed(f"{twice} records were consumed again")
    play.judge()


def owner(play: Play) -> None:
    a, b = play.start("a"), play.start("b")
    play.shared(a, b)
    victim = play.cluster.owner(play.group)
    play.cluster.kill(victim)
    began = time.monotonic()
    try:
        time.sleep(BACK_AFTER_S)
    finally:
        play.cluster.revive(victim)
    ends = dict(play.feed.ends)

    def goes_on() -> bool:
        committed = play.cluster.committed(play.group + play.client.offsets, play.topic)
        x, y = a.journal.held(), b.journal.held()
        return bool(x) and bool(y) and all(committed.get(p, 0) > end for p, end in ends.items())

    try:
        left = OWNER_S - (time.monotonic() - began)
        play.wait("both members consuming and committing again", goes_on, left)
        play.shared(a, b)
        play.consume_all()
        play.cluster.settle()
        play.judge()
    finally:
        play.end()
        play.cluster.settle()


SCENARIOS: dict[str, tuple[str, Callable[[Play], None]]] = {
    "join": ("join", join),
    "rebalance": ("rebalance", rebalance),
    "static": ("static restart", static),
    "resume": ("commit and resume", resume),
    "owner": ("owner killed", owner),
}
