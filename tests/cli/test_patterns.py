"""`sidecar groups patterns`: what it shows, what it refuses, and what it says before it stores anything."""

from __future__ import annotations

import json
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from sidecar.cli import patterns as module
from sidecar.cli.connect import Client
from sidecar.cli.doctor import facts
from sidecar.cli.doctor.model import Facts, Grant, Rights
from sidecar.cli.listing import Listing, gathered
from sidecar.cli.main import app
from sidecar.cli.patterns import Stored, moved
from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.group_patterns import Patterns

WHERE = {"app-a": "broker", "app-b": "sidecar", "load-1": "sidecar", "load-2": "leaves", "odd": "sidecar"}
GROUPS: dict[str, dict[str, Any]] = {g: {} for g in (*WHERE, "unknown")}


class Cluster:
    """`stored`: what is; `told`: what the command has stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, include: tuple[str, ...] | None = ("app-b", "load-.*")) -> None:
        self.stored = {cf.INCLUDE: include, cf.EXCLUDE: None}
        self.told: dict[str, Any] | None = None
        monkeypatch.setattr(Client, "ask", lambda client, *args: self._answer(args[-1]))
        monkeypatch.setattr(module, "store", lambda cluster, wanted: wanted)

    def _answer(self, question: Any) -> Any:
        if question is module.look:
            return self.stored
        if question is gathered:
            return Listing(GROUPS, where=WHERE, orders={"odd": "true"})
        self.told = dict(question(None))
        return None

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["groups", "patterns", "--bootstrap", "here:1", *words])
        return done.exit_code, done.output


def test_it_shows_what_is_stored_and_what_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    code, told = Cluster(monkeypatch, ("app-^p.*",)).run()
    assert code == 0
    assert "sidecar.groups.include: app-^p.*" in told
    assert "sidecar.groups.exclude: nothing is stored" in told
    assert "warning: app-^p.* matches no name" in told
    assert json.loads(Cluster(monkeypatch).run("-o", "json")[1]) == {"include": ["app-b", "load-.*"], "exclude": None}


def test_a_preview_says_what_comes_and_goes_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    these = ("--include", "app-.*", "--include", "load-2", "--include", "nobody")
    code, told = cluster.run(*these, "--dry-run", "-o", "json")
    assert (code, cluster.told) == (0, None)
    body = json.loads(told)
    assert body["comes"] == ["app-a", "load-2"]
    assert body["goes"] == ["load-1"], "odd stays, as that was said of it alone"
    assert body["doubts"] == ["nobody matches no group that there is"]


def test_live_groups_go_back_only_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    code, told = cluster.run("--include", "app-.*")
    assert (code, cluster.told) == (1, None)
    assert "load-1" in told
    code, _ = cluster.run("--include", "app-.*", "--yes")
    assert (code, cluster.told) == (0, {cf.INCLUDE: ("app-.*",), cf.EXCLUDE: None})


def test_what_brings_groups_only_is_stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    assert cluster.run("--include", "app-.*", "--include", "load-.*", "--exclude", "")[0] == 0
    assert cluster.told == {cf.INCLUDE: ("app-.*", "load-.*"), cf.EXCLUDE: ()}
    assert cluster.run("--forget", "--include", "x")[0] == 2


def test_patterns_are_forgotten_as_they_are_stored_if_live_groups_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: --forget moved live groups at once, and said that it had stored something."""
    cluster = Cluster(monkeypatch)
    code, told = cluster.run("--forget")
    assert (code, cluster.told) == (1, None)
    assert "own settings name them: app-b, load-1. Nothing was changed." in told, "odd was ordered by itself"
    code, told = cluster.run("--forget", "--dry-run")
    assert (code, cluster.told) == (0, None)
    assert "app-b, load-1\nNothing was changed." in told
    code, told = cluster.run("--forget", "--yes")
    assert (code, cluster.told) == (0, {cf.INCLUDE: None, cf.EXCLUDE: None})
    assert "stored patterns are gone" in told and "own settings count again" in told


def test_where_nothing_is_stored_nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, None)
    code, told = cluster.run("--forget")
    assert (code, cluster.told) == (0, None)
    assert told == "No patterns are stored: each sidecar's own settings count. Nothing was changed.\n"


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("app-(?!p).*", "no lookahead"),
        ("app-(", "is no regular expression"),
        ("a,b", "more than one pattern"),
        (" a", "begins or ends with a space"),
    ],
)
def test_what_is_no_pattern_is_refused_in_plain_words(monkeypatch: pytest.MonkeyPatch, pattern: str, says: str) -> None:
    cluster = Cluster(monkeypatch)
    code, told = cluster.run("--include", pattern)
    assert (code, cluster.told) == (2, None)
    assert says in told


def test_groups_that_no_acl_covers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch)
    grant = Grant("User:s", "group", "load-", True, "Read", True)
    known = Facts("", rights=Rights(True, "User:s", grants=(grant,)))
    monkeypatch.setattr(facts, "gather", lambda *args: known)
    _, told = cluster.run("--include", "app-.*", "--include", "load-.*", "--principal", "User:s", "--dry-run")
    assert "no ACL lets the sidecars read app-a" in told
    assert "read load" not in told


class Settings:
    """The settings in the state topic: these patterns, and nothing else."""

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.state = SimpleNamespace(partitions=[SimpleNamespace(groups={})])

    def value(self, group_id: str, name: str) -> str | None:
        patterns = self.stored[name.removeprefix("/")]
        return None if patterns is None else ",".join(patterns)

    def put(self, stored: Stored, rules: Rules) -> set[str]:
        """Returns the groups that are wanted with these patterns."""
        self.stored = stored
        rules.stored("", f"/{cf.EXCLUDE}")
        return {g for g in NAMES if rules.wanted(g)}


NAMES = ("a-1", "a-2", "b-1", "b-2", "c")
SETS: tuple[tuple[str, ...] | None, ...] = (None, (), ("a-.*",), (".*-1", "c"), (".*",))


@pytest.mark.parametrize("unset", [(), (cf.INCLUDE,), (cf.EXCLUDE,), (cf.INCLUDE, cf.EXCLUDE)], ids=str)
def test_a_preview_foretells_the_moves_of_the_sidecars(unset: tuple[str, ...]) -> None:
    """Symptom: with no stored include, --exclude moved live groups that the preview did not name."""
    own = OwnRules(Patterns(("a-.*", "b-.*"), ("b-2",)), ("a-.*", "b-.*"), ("b-2",))
    before: Stored
    for include, exclude in product(SETS, SETS):
        for new_include, new_exclude in product(SETS, SETS):
            before = {cf.INCLUDE: include, cf.EXCLUDE: exclude}
            before |= dict.fromkeys(unset)
            given = dict(zip(cf.BROKER_MOVES, (new_include, new_exclude), strict=True))
            after = before | {n: new for n, new in given.items() if new is not None}
            settings = Settings(before)
            rules = Rules(own, settings, SimpleNamespace())  # type: ignore[arg-type]
            here, then = settings.put(before, rules), settings.put(after, rules)
            where = {g: "sidecar" if g in here else "broker" for g in NAMES}
            moves = moved(Listing({g: {} for g in NAMES}, where=where), after)
            assert {g for g, to in moves.items() if to == "broker"} == here - then
            if after[cf.INCLUDE] is not None:
                assert {g for g, to in moves.items() if to == "sidecar"} >= then - here
