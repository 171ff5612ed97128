"""Everything that the pages for operators name is there: commands and options, settings, metrics, drills, links.

Each finder is tried on a mistake too, so that a page without findings is a page that was read."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.exceptions

from sidecar.cli.main import app
from sidecar.drill.drills.names import BOTH, NAMES
from sidecar.process.about import settings_known
from sidecar.process.limits import LimitsSection
from tests.matrix import report
from tools import metrics_table, settings_table

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted(file.stem for file in (ROOT / "docs").rglob("*.md") if file.stem not in ("behaviour", "audit-tables"))
"""All but those on Kafka's own names and on columns."""
LINKED = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
NO_COMMANDS = {"elsewhere"}
"""`sidecar elsewhere` is a column of a drill's table."""
OF_KAFKA = {
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
    "consumer.assignor.offload.enable",
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.assignment.interval.ms",
    "share.assignor.offload.enable",
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.assignment.interval.ms",
    "streams.assignor.offload.enable",
    "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms",
    "streams.rack.aware.assignment.tags",
    "streams.assignor.name",
    "offsets.retention.minutes",
    "offsets.retention.check.interval.ms",
    "offsets.topic.num.partitions",
    "offsets.load.buffer.size",
    "share.version",
    "streams.version",
}
"""Settings and features of Kafka's that begin as a section of ours does."""
SOURCES = (".py", ".js", ".html", ".yml", ".yaml", ".sh")
TOOLS = {
    *("sidecar", "make", "python", "systemctl", "systemd-analyze", "docker", "kind", "kubectl", "uv", "moving_rounds"),
    *("backward", "kafka"),
}
"""First words of commands, and of rows and columns of the drills' tables."""
UNIT_MS = {"ms": 1, "s": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
UNITS = "kafka-group-sidecar.socket kafka-group-sidecar.service"


def page(name: str) -> str:
    (file,) = (ROOT / "docs").rglob(f"{name}.md")
    return file.read_text()


def split_up(text: str) -> tuple[str, list[str]]:
    """The text without its fenced blocks, and the lines of these."""
    prose: list[str] = []
    blocks: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip().startswith("```"):
            inside = not inside
        else:
            (blocks if inside else prose).append(line)
    return "\n".join([*prose, ""]), blocks


def quoted(prose: str) -> list[str]:
    return [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)]


# ---- commands -------------------------------------------------------------------------------------------------
def commands(text: str) -> Iterator[list[str]]:
    """The words after `sidecar` of each command line."""
    prose, blocks = split_up(text)
    for line in [*quoted(prose), *(line.strip() for line in blocks)]:
        if re.match(r"sidecar [a-z]", line):
            words = shlex.split(line, comments=True)[1:]
            ends = [i for i, word in enumerate(words) if word in ("|", ">", ">>", "&&")]
            yield words[: ends[0] if ends else None]


@cache
def program() -> Any:
    """Built once: it takes longer than a page."""
    return typer.main.get_command(app)


STANDS_FOR = {"N": "1", "NAME": "stop", "HOST:PORT": "host:1", "SIDECARS": "host:1", "BROKERS": "host:1"}
"""A word of the pages -> one that a user may write."""


def fault(words: list[str]) -> str | None:
    """Returns the program's error for these words, if any; a page may leave out what is required."""
    command = program()
    while words and hasattr(command, "commands"):
        name, *words = words
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    given = [STANDS_FOR.get(word, word) for word in words if word != "..."]
    try:
        if given:
            command.make_context("sidecar", given)
    except typer.exceptions.TyperException as exc:
        said = str(exc.format_message())
        return None if said.startswith("Missing ") or said.endswith(" requires an argument.") else said
    return None


def wrong_commands(text: str) -> list[str]:
    told = [words for words in commands(text) if words[0] not in NO_COMMANDS]
    return [f"{' '.join(words)}: {said}" for words in told if (said := fault(list(words))) is not None]


# ---- settings -------------------------------------------------------------------------------------------------
def known_settings() -> set[str]:
    """Names of settings, and of sections, with `.*` behind them too."""
    names = {row["setting"] for row in settings_known()}
    sections = {name[:at] for name in names for at, char in enumerate(name) if char == "."}
    return names | sections | {f"{section}.*" for section in sections}


def named_settings(text: str) -> Iterator[str]:
    known = known_settings()
    sections = {name.partition(".")[0] for name in known if "." in name}
    prose, _ = split_up(text)
    for word in quoted(prose):
        path = re.fullmatch(r"([a-z_]+)\.[a-z_.]*[a-z*]", word)
        if path and path[1] in sections and word not in OF_KAFKA and not word.endswith(".py"):
            yield word
    for name in re.findall(r"SIDECAR_([A-Z_]*[A-Z])\b(?!_\*|\.\.\.)", text):
        yield name.lower().replace("__", ".")
    for heading, table in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", prose, re.M):
        rows = re.findall(r"^\| setting \|.*\n\|[-|]+\n((?:\|.*\n)*)", table, re.M)
        for first in re.findall(r"^\| ([^|]+) \|", "".join(rows), re.M):
            last = ""
            for name in quoted(first):
                last = last.rpartition(".")[0] + name if name.startswith(".") else name
                yield f"limits.{last}" if heading == "Limits" else last


def wrong_settings(text: str) -> list[str]:
    return sorted(set(named_settings(text)) - known_settings())


def defaults() -> dict[str, Any]:
    """Name -> default, by the whole name and by the part behind the last dot."""
    found = {row["setting"]: row["default"] for row in settings_known()}
    return {name.rpartition(".")[2]: value for name, value in found.items()} | found


def wrong_defaults(text: str) -> list[str]:
    """Settings with a value in brackets behind them, as `state.write_timeout_ms` (10 s), that is not their default."""
    known = defaults()
    wrong = []
    told = re.findall(r"`([a-z_.]+)`\s+\((\d[\d,.]*)(?: (ms|s|minutes|hours|days))?[,;)]", split_up(text)[0])
    for name, number, unit in told:
        default = known.get(name.removeprefix("."))
        if isinstance(default, int | float) and float(number.replace(",", "")) * UNIT_MS.get(unit, 1) != default * (
            1000 if unit and name.endswith("_s") else 1
        ):
            wrong.append(f"{name}: {number} {unit}")
    return wrong


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert (ROOT / settings_table.PAGE).read_text() == settings_table.page(), "run python -m tools.settings_table"


def test_the_page_of_clients_is_that_of_the_report() -> None:
    """Symptom: the page had a section that the next `make clients` would have removed."""
    fixed = re.split(r"\{[a-z:.0-9]+\}", report.DOCUMENT)
    assert [text for text in fixed if text not in page("clients")] == []
    assert re.findall(r"^#+ .+$", page("clients"), re.M) == re.findall(r"^#+ .+$", report.DOCUMENT, re.M)


def test_each_limit_has_a_row_that_says_what_a_client_sees() -> None:
    table = page("operations").partition("\n## Limits\n")[2].partition("\n## ")[0]
    told = {name for first in re.findall(r"^\| (`[^|]+) \|", table, re.M) for name in quoted(first)}
    assert told == set(LimitsSection.model_fields)


def test_each_limit_says_where_it_is_counted() -> None:
    """A turn is the exception: it refuses nothing at its end, and closes nothing."""
    table = page("operations").partition("\n## Limits\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+) \|[^|]*\| ([^|]*) \|$", table, re.M)
    assert [name for name, counted in rows if counted == "-"] == ["`turn_requests`"]


# ---- metrics, drills, make ------------------------------------------------------------------------------------
def wrong_metrics(text: str) -> list[str]:
    told = re.findall(r"\b((?:sidecar|group_state_audit|process|kafka_consumergroup)_[a-z_]*[a-z])\b(?!\*|\.)", text)
    known = metrics_table.names()
    known |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    return sorted(set(told) - known)


def drills() -> set[str]:
    """As NAME= has them in the table: those that are played together have one row."""
    together = {name for names in BOTH.values() for name in names}
    return set(NAMES) - together | set(BOTH)


def wrong_drills(text: str) -> list[str]:
    told = [name for names in re.findall(r"make drill NAME=\"?([a-z -]+?)[\" `]", text) for name in names.split()]
    return sorted({name for name in told if name not in drills() | set(NAMES) | {"all"}} - {"N"})


def wrong_targets(text: str) -> list[str]:
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    return sorted(set(re.findall(r"`make ([a-z-]+)", text)) - there)


def wrong_modules(text: str) -> list[str]:
    """Programs of a checkout that are not there: `python -m MODULE`, and what `make bench` runs."""
    named = re.findall(r"python -m ([\w.]*\w)", text)
    named += [f"benchmarks.{name.replace('-', '_')}" for name in re.findall(r"make bench NAME=([\w-]+)", text)]
    files = {name: ROOT / name.replace(".", "/") for name in named}
    return sorted(n for n, f in files.items() if not (f.with_suffix(".py").exists() or (f / "__main__.py").exists()))


# ---- links ----------------------------------------------------------------------------------------------------
def anchors(file: Path) -> set[str]:
    """As GitHub makes them: a heading that is there twice gets a number."""
    found: dict[str, int] = {}
    made = set()
    for heading in re.findall(r"^#{1,6} (.+)$", split_up(file.read_text())[0], re.M):
        slug = (
            re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
        )
        made.add(slug if slug not in found else f"{slug}-{found[slug]}")
        found[slug] = found.get(slug, 0) + 1
    return made


def wrong_links(text: str, folder: Path, itself: Path) -> list[str]:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", split_up(text)[0])):
        if "://" in target or target.startswith("mailto:"):
            continue
        name, _, anchor = target.partition("#")
        file = (folder / name).resolve() if name else itself
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


# ---- what the program says ------------------------------------------------------------------------------------
@cache
def said() -> str:
    """The program's text, in which a message may stand on several lines."""
    files = [p for top in ("sidecar", "deploy") for p in (ROOT / top).rglob("*.*") if p.suffix in SOURCES]
    text = "\n".join(p.read_text() for p in files if "generated" not in p.parts)
    return re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*f?"', "", text))


def wrong_messages(text: str) -> list[str]:
    """Quoted words that no log line, problem of /readyz or output has. A number stands for whatever is filled in."""
    told = [q for q in quoted(split_up(text)[0]) if re.fullmatch(r"[a-z][a-z0-9', ;_-]* [a-z0-9', ;_-]*", q)]
    told = [q for q in told if q.split()[0] not in TOOLS and " -" not in q]
    return sorted({q for q in told for part in re.split(r"\d+", q) if part.strip() not in said()})


# ---- stops ----------------------------------------------------------------------------------------------------
def wrong_stops(text: str) -> list[str]:
    """Stops that would not last: systemd keeps the port, and the next client starts the sidecar again."""
    shown = re.findall(r"systemctl (?:stop|disable --now) (kafka-group-sidecar[^\n`#]*)", text)
    wrong = [units for units in shown if units.strip() != UNITS]
    steps = re.split(r"\n(?=\d\. |\*|\n)", split_up(text)[0])
    for step in steps:
        if (
            re.search(r"\b[Ss]top(?: all| the| its)? sidecars?\b", step)
            and UNITS not in step
            and "both units" not in step
        ):
            wrong.append(step)
    return wrong


# ---- files ----------------------------------------------------------------------------------------------------
def known_files() -> set[str]:
    """Every file of code, and each end of its path: `core/runtime/owner.py`, `runtime/owner.py`, `owner.py`."""
    paths = [p.relative_to(ROOT) for top in ("sidecar", "tests", "tools") for p in (ROOT / top).rglob("*.*")]
    paths += [Path(p.name) for p in ROOT.iterdir()]
    return {"/".join(p.parts[n:]) for p in paths for n in range(len(p.parts))}


def wrong_files(text: str) -> list[str]:
    named = [word for word in quoted(split_up(text)[0]) if re.fullmatch(r"[\w/*.-]+\.(?:py|toml|c|txt|tla)", word)]
    known = known_files()
    return sorted({word for word in named if not word.startswith("out/") and not fnmatch.filter(known, word)})


MISTAKEN_LIMIT = "## Limits\n| setting | metric |\n|---|---|\n| `f` | 1 |\n"
FINDERS: dict[Callable[[str], list[str]], tuple[str, ...]] = {
    wrong_commands: ("`sidecar grups list`", "`sidecar doctor --bootstraps A`", "```\nsidecar health A B\n```"),
    wrong_settings: ("`groups.includes`", "SIDECAR_LISTENS", MISTAKEN_LIMIT),
    wrong_metrics: ("sidecar_group_moves{to=1}", "`process_cpu`"),
    wrong_drills: ("`make drill NAME=kill-everybody N=1`",),
    wrong_targets: ("`make tea`",),
    wrong_defaults: ("`state.write_timeout_ms` (9 s)", "`broker_gone_ms`\n(2 s)"),
    wrong_messages: ("`the broker is mute`", "`node id 7 is not among brokers`"),
    wrong_modules: ("`python -m tools.alrts`", "`make bench NAME=commit-lines`"),
}  # fmt: skip


@pytest.mark.parametrize("finder", FINDERS, ids=lambda f: f.__name__)
def test_a_mistake_would_be_found(finder: Callable[[str], list[str]]) -> None:
    for text in FINDERS[finder]:
        assert finder(text), text


@pytest.mark.parametrize("finder", FINDERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_is_there(name: str, finder: Callable[[str], list[str]]) -> None:
    assert finder(page(name)) == []


def test_the_pages_are_read() -> None:
    """The patterns find something on the pages."""
    both = page("operations") + page("procedures")
    assert len(list(commands(both))) > 30 and len(set(named_settings(page("operations")))) > 50
    assert {"limits.frame_bytes", "exporter.series", "admin_access.*", "groups.include"} <= set(named_settings(both))


@pytest.mark.parametrize("file", LINKED, ids=lambda f: f.name)
def test_links_lead_somewhere(file: Path) -> None:
    assert wrong_links(file.read_text(), file.parent, file) == []


def test_a_link_that_leads_nowhere_would_be_found() -> None:
    file = ROOT / "docs" / "operate/operations.md"
    good = "[a](deploy.md) [b](deploy.md#systemd) [c](#limits) [d](procedures.md#resize-__consumer_offsets)"
    assert wrong_links(good, file.parent, file) == []
    wrong = ["depoly.md", "deploy.md#sistemd", "#limts"]
    assert wrong_links(" ".join(f"[x]({target})" for target in wrong), file.parent, file) == wrong


CITED = re.compile(r"docs/([a-z/-]+\.md), ['\"]?([A-Z][a-z][A-Za-z -]*[a-z])")
"""A page and the begin of one of its headings, as code cites them."""


def wrong_headings(text: str) -> list[str]:
    cited = CITED.findall(re.sub(r"\s+#?\s*", " ", text))
    pages = {path: (ROOT / "docs" / path).read_text() if (ROOT / "docs" / path).exists() else "" for path, _ in cited}
    return [f"{path}: {h}" for path, h in cited if not re.search(rf"^#+ {re.escape(h)}", pages[path], re.M)]


@pytest.mark.tier("test")
def test_headings_that_code_cites_are_there() -> None:
    files = [p for top in ("sidecar", "tests", "tools", "deploy") for p in (ROOT / top).rglob("*.*")]
    texts = {p: p.read_text() for p in [*files, ROOT / "pyproject.toml"] if p.suffix in (*SOURCES, ".toml", ".txt")}
    assert sum(len(CITED.findall(text)) for text in texts.values()) > 15
    assert [wrong for text in texts.values() for wrong in wrong_headings(text)] == []
    assert wrong_headings("(docs/design/decisions.md, Turns and\n# replays)") == [
        "design/decisions.md: Turns and replays"
    ]


@pytest.mark.parametrize("name", ("architecture", "decisions", "glossary", "simulation", "testing"))
def test_files_that_a_page_names_are_there(name: str) -> None:
    assert wrong_files(page(name)) == []


def test_so_are_those_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert wrong_files(text) == [] and wrong_targets(text) == []


def test_the_glossary_has_short_entries_in_order() -> None:
    rows = re.findall(r"^\| (?!term \| meaning)([^|]+) \| ([^|]+) \| ([^|]+) \|$", page("glossary"), re.M)
    terms = [term for term, _, _ in rows]
    assert 60 <= len(terms) <= 90 and terms == sorted(set(terms), key=lambda t: t.lower().replace("'", ""))
    assert [term for term, meaning, _ in rows if len(meaning.split()) > 20] == []


def test_a_file_that_is_not_there_would_be_found() -> None:
    assert wrong_files("`runtime/owner.py` `api/offset_*.py` `runtime/ovner.py`") == ["runtime/ovner.py"]


def test_the_table_of_drills_has_every_drill_and_no_other() -> None:
    table = page("drills").partition("| `NAME=` |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.M)) == drills()


def test_the_drills_of_the_procedures_are_there() -> None:
    table = page("procedures").partition("| procedure | drill |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| \[.+?\]\(#.+?\) \| (.+?) \|", table, re.M)
    named = [name for row in rows for name in quoted(row)]
    assert len(rows) >= 7 and len(named) == len(set(named))
    assert set(named) == {"roll-out", "rolling-upgrade", "rollback", "take-out", "restore", "remove-broker"} <= drills()


@pytest.mark.parametrize("name", PAGES)
def test_a_stop_that_is_to_last_names_both_units(name: str) -> None:
    assert wrong_stops(page(name)) == []


def test_so_does_the_socket_itself() -> None:
    text = (ROOT / "deploy/systemd/kafka-group-sidecar.socket").read_text()
    assert UNITS in text and wrong_stops(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "`systemctl stop kafka-group-sidecar`, then the broker",
        "```\nsystemctl disable --now kafka-group-sidecar.service\n```",
        "1. Stop all sidecars. Clients cannot reach their brokers.\n2. both units",
        "*Back:* stop the sidecar, and restart the broker",
    ],
)
def test_a_stop_that_would_not_last_would_be_found(text: str) -> None:
    assert wrong_stops(text)
