"""The tests of each command: `make quick`, `make test`, `make test-all`, `make nightly` (docs/design/testing.md).

A test belongs to the tier of its folder (FOLDERS), and to `quick` where the table has none. The nearest mark
`@pytest.mark.tier("test")`, `("all")` or `("nightly")` moves a test, a class or a module to a later tier. A test that
needs Kafka's jars starts a JVM, so it is never in `quick`. Each command runs its own tier and the tiers before it.
`pytest FILE` without `--tier` runs everything in the file. Random tests play more seeds, and other ones, in each tier.
Of cases with the mark `drawn`, each run plays some, and nightly all.

Tests that share a world (worlds.py) run in one process, one after the other: the world is their xdist group. It ends
with the last of them, because brokers and Spark cost processor time also while nobody uses them.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.nodeid import coerce_node_id

GROUP = "@"
"""Between the id of a test and its xdist group."""
TESTS = Path(__file__).resolve().parent.parent
TIERS = ("quick", "test", "all", "nightly")
WORLDS = {"trio_world": "trio", "kafka": "kafka", "spark": "kafka", "attacked": "attacked"}
"""Fixture of a shared world -> xdist group of the tests that use it."""
NIGHTLY_TIMEOUT_S = 1_800
"""The limit of a nightly test without one of its own: a night plays many more seeds in one test."""
FOLDERS: Mapping[str, str] = {
    "audit/gold": "test",
    "audit/lake": "test",
    "audit/page": "test",
    "clients": "test",
    "deploy": "all",
    "differential": "test",
    "fuzz": "test",
    "hostile": "all",
    "matrix": "test",
    "mutants": "test",
    "page": "test",
    "player": "test",
    "security": "test",
    "see": "all",
    "tools": "test",
    "whole/broker": "test",
}
"""The first tier in which a folder has tests. Earlier tiers do not even import them."""
SEEDS: Mapping[str, float] = {"quick": 0.03, "test": 0.05, "all": 0.2, "nightly": 3.0}
"""Share of its full number of seeds that a random test plays in each tier."""
FIRST_SEED = "FIRST_SEED"
RANGE = 1_000_000_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, default=None, help="run the tests of this tier and of those before it")
    parser.addoption("--only-tier", choices=TIERS, default=None, help="run the tests of this tier alone")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'tier(name): the first command that runs this test: "test", "all" or "nightly"')
    config.addinivalue_line(
        "markers", "drawn(share): each run plays this share of the cases, other ones each time; nightly plays all"
    )
    config.addinivalue_line(
        "markers", "needs(program, ...): skipped, with this reason, where one of them is not installed"
    )
    # Workers of xdist inherit the variable, so all processes of a run play the same seeds.
    os.environ.setdefault(FIRST_SEED, str(random.SystemRandom().randrange(RANGE)))


def pytest_report_header(config: pytest.Config) -> str:
    return f"{FIRST_SEED}={os.environ[FIRST_SEED]} tier={tier_of_run(config)}"


def tier_of_run(config: pytest.Config) -> str:
    """Returns the tier that the command asked for; `all` for a run of single files."""
    found = config.getoption("--tier") or config.getoption("--only-tier") or "all"
    return str(found)


@cache
def _folder_tier(path: Path) -> str:
    """Returns the tier of the nearest folder that the table names."""
    for folder in (path, *path.parents):
        if folder.is_relative_to(TESTS) and (name := FOLDERS.get(folder.relative_to(TESTS).as_posix())):
            return name
    return "quick"


@cache
def tier_of(item: pytest.Item) -> str:
    """Returns the tier of a test: that of its nearest mark or of its folder, and never `quick` where it needs a JVM."""
    own = [mark for mark in item.own_markers if mark.name == "tier"]  # those of a case come after its function's
    mark = own[-1] if own else item.get_closest_marker("tier")
    name = _folder_tier(item.path) if mark is None else str(mark.args[0])
    if name not in TIERS:
        raise pytest.UsageError(f"{item.nodeid}: no such tier: {name}; there are {', '.join(TIERS)}")
    return "test" if name == "quick" and "libs" in getattr(item, "fixturenames", ()) else name


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignores files without tests of this run: they are not imported."""
    upto = config.getoption("--tier")
    if upto is not None and TIERS.index(_folder_tier(collection_path)) > TIERS.index(upto):
        return True
    return None


def _wanted(config: pytest.Config) -> tuple[str, ...]:
    only = config.getoption("--only-tier")
    if only is not None:
        return (only,)
    upto = config.getoption("--tier")
    return TIERS if upto is None else TIERS[: TIERS.index(upto) + 1]


@cache
def _in_see(path: Path) -> bool:
    return TESTS / "see" in path.parents


@cache
def _group(item: pytest.Item) -> str:
    """Returns the xdist group: the shared world, else the file where a fixture lives as long as the file; else none."""
    names = getattr(item, "fixturenames", ())
    for fixture, group in WORLDS.items():
        if fixture in names:
            return group
    if _in_see(item.path):  # its world lives as long as the folder's tests
        return "see"
    if tier_of(item) != "quick":
        return item.nodeid.partition("::")[0]
    return ""


def without_group(nodeid: str) -> str:
    """Returns the id of a test as pytest takes it."""
    return nodeid.rpartition(GROUP)[0] if nodeid.rfind(GROUP) > nodeid.rfind("]") else nodeid


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Any:
    """Freezes everything that was imported: the garbage collector need not look at it, neither meanwhile nor in each
    test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def _is_drawn(item: pytest.Item, share: float, wanted: tuple[str, ...]) -> bool:
    """Returns whether this run plays a case of a test of which it plays a share."""
    if "nightly" in wanted:
        return True
    return tier_of(item) in wanted and random.Random(f"{os.environ[FIRST_SEED]} {item.name}").random() < share


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = _wanted(config)
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        again = "seeds" in getattr(item, "fixturenames", ()) and TIERS.index(tier_of(item)) < TIERS.index(wanted[0])
        drawn = item.get_closest_marker("drawn")
        wants = again or tier_of(item) in wanted if drawn is None else _is_drawn(item, drawn.args[0], wanted)
        (kept if wants else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
    for item in kept:
        if (name := _group(item)) and hasattr(config, "workerinput"):
            # As the mark xdist_group does before pytest 9.2, whose ids xdist 3.8 does not reach.
            item._id = coerce_node_id(f"{item.nodeid}{GROUP}{name}")
        if wanted == ("nightly",) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_S))
        for mark in item.iter_markers("needs"):
            if missing := [name for name in mark.args if shutil.which(name) is None]:
                item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))
    # What takes longest begins first, so that all processes end together. Tests of one world are neighbours.
    worlds = Counter(group for item in kept if (group := _group(item)) in WORLDS.values())
    order = [group for group, _ in worlds.most_common()]

    def place(item: pytest.Item) -> tuple[int, int]:
        group = _group(item)
        return order.index(group) if group in worlds else len(order), -TIERS.index(tier_of(item))

    items[:] = sorted(kept, key=place)


_started: dict[str, pytest.FixtureDef[Any]] = {}
"""Fixtures of worlds that are running."""


@pytest.hookimpl
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> None:
    if fixturedef.argname in WORLDS:
        _started[fixturedef.argname] = fixturedef


def over(group: str, following: str) -> list[str]:
    """Returns the fixtures that end when a test of `following` comes behind one of `group`."""
    return [] if group == following else [fixture for fixture, world in WORLDS.items() if world == group]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """The last test of a world ends it; behind the last test of all pytest does."""
    try:
        return (yield)
    finally:
        for name in over(_group(item), _group(nextitem)) if nextitem is not None else ():
            if (world := _started.pop(name, None)) is not None:
                world.finish(item._request)  # type: ignore[attr-defined]


def _take_no_skip(report: pytest.TestReport | pytest.CollectReport, config: pytest.Config) -> None:
    strict = config.getoption("--tier") in ("all", "nightly") or config.getoption("--only-tier") is not None
    if report.skipped and strict:
        report.outcome = "failed"
        report.longrepr = f"skipped, and nothing may be skipped in this tier: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """A file that skips itself is a skip, too."""
    report = yield
    _take_no_skip(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """In test-all and nightly everything is installed, so a skip is a failure there."""
    report = yield
    if not hasattr(report, "wasxfail"):
        _take_no_skip(report, item.config)
    if report.failed:
        seed = os.environ[FIRST_SEED]
        report.sections.append(
            (
                "to repeat this test alone",
                f"{FIRST_SEED}={seed} .venv/bin/python -m pytest '{without_group(item.nodeid)}'",
            )
        )
    return report


@pytest.fixture(scope="session")
def seeds(pytestconfig: pytest.Config) -> Seeds:
    return Seeds(int(os.environ[FIRST_SEED]), tier_of_run(pytestconfig))


def seeds_of_run(count: int) -> range:
    """Returns seeds for parameters and module fixtures: other ones in each run, as many in each tier."""
    first = int(os.environ.get(FIRST_SEED, "0"))
    return range(first, first + count)


class Seeds:
    """The seeds that a random test plays: other ones in each run, more of them in later tiers."""

    def __init__(self, first: int, tier: str) -> None:
        self.first, self.tier = first, tier

    def of(self, full: int, least: int = 1, **counts: int) -> range:
        """Returns the seeds of this run for a test whose full number is `full`; SEEDS has each tier's share.

        `counts`: the number in a tier that plays another one than its share, by the tier's name.
        """
        count = counts.get(self.tier, round(full * SEEDS[self.tier]))
        return range(self.first, self.first + max(least, count))
