"""Every command: its help, its exit codes and its errors, with and without the extra [audit]."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from sidecar.audit.history.topic import Reader, RecordsRead
from sidecar.cli import groups as groups_module
from sidecar.cli import output
from sidecar.cli.doctor.model import Facts, Node
from sidecar.cli.exits import MEANINGS, Code
from sidecar.cli.history import place_of
from sidecar.cli.listing import Listing
from sidecar.cli.main import app
from sidecar.cli.program import EXTRAS
from sidecar.drill.processes import DrillError
from tests.cli.test_groups import NOT_ALLOWED, Sidecars

CLI = Path(__file__).parents[2] / "sidecar" / "cli"
NOBODY = "127.0.0.1:1"
AT = ("--bootstrap", NOBODY)
WITHOUT = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
from sidecar.cli.main import app
app()
"""
"""The program where the modules of an extra are not installed."""


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def without(extra: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(names=EXTRAS[extra])
    env = {k: v for k, v in os.environ.items() if not k.startswith("SIDECAR_")}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd, timeout=250)


def commands() -> Iterator[tuple[str, ...]]:
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        subs = getattr(command, "commands", {})
        yield from ((name, sub) for sub in subs)
        if not subs:
            yield (name,)


def flat(text: str) -> str:
    return " ".join(text.replace("\u2502", " ").split())


# ---- help ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("words", [(), *commands()], ids=" ".join)
def test_every_command_has_a_help_that_is_for_its_user(words: tuple[str, ...]) -> None:
    done = call(*words, "--help")
    assert done.exit_code == 0 and "--help" in done.output
    text = flat(done.output)
    assert "Usage: " in text and "python -m" not in text and ".md" not in text


def test_the_help_has_the_exit_codes() -> None:
    text = flat(call("--help").output)
    assert all(f"{int(code)}: {meaning}" in text for code, meaning in MEANINGS.items())


def test_the_two_releases_name_each_other() -> None:
    assert "`sidecar groups release`" in flat(call("release", "--help").output)
    assert "`sidecar release`" in flat(call("groups", "release", "--help").output)


@pytest.mark.tier("test")  # a process for each command
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sidecar gro", "groups"),
        ("sidecar groups expl", "explain"),
        ("sidecar groups describe --boo", "--bootstrap"),
        ("sidecar top --sort reb", "rebalances"),
        ("sidecar drill kill-o", "kill-owner"),
        ("sidecar state rep", "repair"),
    ],
)
def test_the_shell_completes(typed: str, offered: str) -> None:
    words = typed.split()
    env = {**os.environ, "_SIDECAR_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    program = Path(sys.executable).parent / "sidecar"
    done = subprocess.run([program], env=env, capture_output=True, text=True, check=False, timeout=250)
    assert done.stdout.split() == [offered], done


# ---- exit codes ------------------------------------------------------------------------------------------------------
BROKERS = (
    ("groups", "list", *AT),
    ("groups", "describe", "g", *AT),
    ("groups", "describe", "g", "--admin", NOBODY),
    ("groups", "members", "g", *AT),
    ("groups", "explain", "g", *AT),
    ("groups", "history", "g", *AT),
    ("groups", "adopt", "g", *AT, "--timeout", "0.05"),
    ("groups", "release", "g", *AT, "--timeout", "0.05"),
    ("groups", "rebalance", "g", *AT, "--timeout", "0.05"),
    ("history", "g", *AT),
    ("owner", "g", *AT),
    ("top", *AT, "--once"),
    ("doctor", *AT),
    ("release", "g", *AT),
    ("state", "dump", "a.jsonl", *AT),
    ("state", "load", "a.jsonl", *AT),
    ("state", "repair", "g", *AT),
    ("health", NOBODY),
)
ONE_GROUP = ("members", "history", "explain", "describe", "repair")
LAKE = tuple(("audit", name) for name in ("status", "ownership", "rebalances", "overlaps", "coverage", "check"))
LAKES = (*LAKE, ("audit", "report"), ("audit", "views"), ("audit", "sql", "select 1"))
MISUSED = (
    ("acls", "--principal", "nobody"),
    ("config", "check"),
    ("config", "show"),
    ("drill", "no-such-drill"),
    ("drill", "stop", "--kafka", "latest"),
    ("drill", "stop", "--out", "/proc/no"),
    *(("groups", verb, "g", *AT, "--timeout", number) for verb in ("adopt", "rebalance") for number in ("inf", "nan")),
    ("groups", "list", *AT, "--watch", "inf"),
    ("top", *AT, "--interval", "nan"),
    ("audit", "stream", "--from", "kafka://h:1", "--every", "inf"),
    ("owner", "t", "--group", "g", *AT),
    ("run",),
    ("state", "dump", "a.txt", *AT),
    ("audit", "run", "--from", "kafka://h:1", "--format", "csv"),
    ("audit", "stream", "--from", "kafka://h:1", "--metrics", "x"),
    *((*words, "--command-config", "none") for words in BROKERS if "--admin" not in words and words[0] != "health"),
    ("health", NOBODY, "--token-file", "none"),
    *(tuple("localhost" if word == NOBODY else word for word in words) for words in BROKERS),
)
"""The last ones: an address without a port. librdkafka takes that of 9092, and a part of a command did so."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands wait for no answer, and run in an empty folder."""
    import sidecar.audit.source.topic
    import sidecar.cli.state

    monkeypatch.setattr(sidecar.audit.source.topic, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(sidecar.cli.state, "ANSWER_S", 0.1)
    monkeypatch.setattr(groups_module, "ANSWER_S", 0.1)
    monkeypatch.setattr(groups_module, "GLANCE_S", 0.1)
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)


def error_lines(done: Result, code: Code) -> list[str]:
    """Returns the lines on stderr. The first one has the error, the last one what to do next."""
    assert done.exit_code == code, (done.exit_code, done.output)
    lines = done.stderr.splitlines()
    assert len(lines) >= 2 and all(lines), lines
    assert "Traceback" not in done.output and ".md" not in done.stderr
    return lines


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", BROKERS, ids=" ".join)
def test_where_nobody_answers_it_is_3(words: tuple[str, ...]) -> None:
    assert NOBODY in error_lines(call(*words), Code.UNREACHED)[0] or words[0] == "release" or "--timeout" in words


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", LAKES, ids=" ".join)
def test_where_there_is_no_lake_it_is_3(words: tuple[str, ...]) -> None:
    assert "sidecar audit run" in error_lines(call(*words, "--lake", "nowhere"), Code.UNREACHED)[1]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", MISUSED, ids=" ".join)
def test_a_wrong_command_line_is_2(words: tuple[str, ...]) -> None:
    error_lines(call(*words), Code.USAGE)


@pytest.mark.parametrize("verb", ["adopt", "release", "rebalance"])
def test_what_is_refused_is_1(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecars = Sidecars([NOT_ALLOWED], told={"sidecar.state": "sidecar", "sidecar.epoch": "7"})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda config: sidecars)
    assert "ALTER_CONFIGS" in error_lines(call("groups", verb, "g", *AT), Code.FINDINGS)[1]


@pytest.mark.parametrize(
    "words",
    [
        w
        for w in BROKERS
        if w[0] in ("history", "owner") or w[1] in ("members", "history", "explain", "describe", "repair")
    ],
    ids=" ".join,
)
def test_what_is_not_found_is_1(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if "--admin" in words:
        monkeypatch.setattr("sidecar.cli.asking.Asking.get", lambda *args: {"problem": "no such group"})
    monkeypatch.setattr(Reader, "partitions", lambda self: 1)
    monkeypatch.setattr(Reader, "read", lambda self, p, *args: RecordsRead(p))
    assert "sidecar groups list" in error_lines(call(*words), Code.FINDINGS)[-1]


@pytest.mark.parametrize("verb", ["members", "explain", "describe"])
def test_where_a_group_without_records_is_is_asked(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: "it is the broker's, or there is none", where the brokers could tell."""
    monkeypatch.setattr(Reader, "partitions", lambda self: 1)
    monkeypatch.setattr(Reader, "read", lambda self, p, *args: RecordsRead(p))
    for there, where in (({"g"}, "it is the broker's."), ({"other"}, "there is no such group, or this user may not")):
        monkeypatch.setattr("sidecar.cli.connect.Client.ask", lambda *args, there=there: there)
        assert f"no records of group g: {where}" in error_lines(call("groups", verb, "g", *AT), Code.FINDINGS)[0]


def test_what_the_doctor_or_a_list_finds_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Facts("__group_state", [Node(1, "h:1", False)])
    monkeypatch.setattr("sidecar.cli.doctor.facts.gather", lambda *args: bare)
    done = call("doctor", *AT)
    assert done.exit_code == Code.FINDINGS and "FAIL  listeners" in done.stdout
    monkeypatch.setattr("sidecar.cli.connect.Client.ask", lambda *args: Listing())
    assert "DESCRIBE" in error_lines(call("groups", "list", *AT), Code.FINDINGS)[-1]
    error_lines(call("config", "settings", "no-such-setting"), Code.FINDINGS)


@pytest.mark.parametrize(
    "words",
    [w for w in BROKERS if w[0] in ("history", "owner", "top") or w[1] in ("members", "history", "explain", "repair")],
    ids=" ".join,
)
def test_a_bug_is_70_and_its_trace_is_shown(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any) -> None:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(Reader, "__enter__", breaks)
    done = call(*words)
    assert done.exit_code == Code.BROKEN
    assert "Traceback" in done.stderr and "ZeroDivisionError: injected" in done.stderr
    assert "sidecar --version" in done.stderr.splitlines()[-1]


def test_a_bug_in_a_command_without_brokers_is_70(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any) -> None:
        raise KeyError("injected")

    monkeypatch.setattr("sidecar.process.settings.load", breaks)
    assert {call(*words).exit_code for words in (("config", "check"), ("config", "show"), ("run",))} == {Code.BROKEN}


@pytest.mark.parametrize("words", [w for w in BROKERS if w[0] in ("history", "owner")], ids=" ".join)
def test_ctrl_c_is_130(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def pressed(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reader, "__enter__", pressed)
    assert call(*words).exit_code == Code.INTERRUPTED
    assert call(*words, "--watch", "1").exit_code == Code.INTERRUPTED


@pytest.mark.tier("test")  # a process for each command
@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("--version",),
        ("config", "settings"),
        ("config", "settings", "tls", "-o", "csv"),
        ("acls", "--principal", "User:x"),
    ],
    ids=" ".join,
)
def test_it_is_141_and_quiet_where_nobody_reads_the_output(words: tuple[str, ...]) -> None:
    """By rich, by typer, by a buffer that is written at the end. `--version` ends before there is a command."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        command = [str(Path(sys.executable).parent / "sidecar"), *words]
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            command, stdout=writes, stderr=subprocess.PIPE, env=env, text=True, check=False, timeout=250
        )
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (Code.UNREAD, "")


def test_a_connection_that_broke_is_not_taken_for_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(Reader, "__enter__", breaks)
    assert call("history", "g", *AT).exit_code == Code.BROKEN


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", [("history", "g"), ("owner", "g")], ids=" ".join)
def test_history_and_owner_can_be_watched(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    # Not time.sleep itself: threads of other tests sleep, too, and would be interrupted in the place of the command.
    monkeypatch.setattr(output, "time", SimpleNamespace(sleep=sleep))
    done = call(*words, *AT, "--watch", "2")
    assert (done.exit_code, looks) == (Code.INTERRUPTED, [2, 2, 2])
    assert done.stderr.count("--command-config") == 3


# ---- errors ----------------------------------------------------------------------------------------------------------
def test_no_command_says_an_error_in_its_own_way() -> None:
    """A command does not call `echo(..., err=True)` and then exit: that has no line of what to do next. Only a bug has
    a trace."""
    wrong = []
    for path in CLI.rglob("*.py"):
        if path.name == "program.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            bodies = [b for name in ("body", "orelse", "finalbody") if isinstance(b := getattr(node, name, None), list)]
            for body in bodies:
                pairs = itertools.pairwise(body)
                wrong += [f"{path.name}:{a.lineno}" for a, b in pairs if _to_stderr(a) and _exits(b)]
    assert wrong == []


def _to_stderr(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and any(k.arg == "err" for k in call.keywords)


def _exits(node: ast.stmt) -> bool:
    text = ast.unparse(node)
    return text.startswith(("raise typer.Exit", "sys.exit", "raise SystemExit")) and "Code.BROKEN" not in text


def test_every_failure_says_what_to_do_next() -> None:
    found = 0
    for path in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Failed":
                found += 1
                then = node.args[2]
                assert not (isinstance(then, ast.Constant) and not then.value), f"{path.name}:{node.lineno}"
    assert found > 40


# ---- without the extra [audit] --------------------------------------------------------------------------------------
@pytest.mark.parametrize("extra", EXTRAS)
def test_the_extra_is_the_one_of_the_package(extra: str) -> None:
    extras = tomllib.loads((CLI.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {re.split(r"[>\[]", wanted)[0] for wanted in extras[extra]} == set(EXTRAS[extra])


NEED_AUDIT = (*LAKES, ("audit", "run", "--from", "kafka://h:1"), ("audit", "stream", "--from", "kafka://h:1"))


@pytest.mark.tier("test")  # a process for each command
@pytest.mark.parametrize("words", [*NEED_AUDIT, ("drill", "kill-owner"), ("drill", "all")], ids=" ".join)
def test_without_the_extra_it_is_2_and_the_command_that_installs_it(words: tuple[str, ...], tmp_path: Path) -> None:
    done = without("audit", *words, cwd=tmp_path)
    assert done.returncode == Code.USAGE, done
    assert done.stderr.splitlines()[1:] == ["pip install 'kafka-group-sidecar[audit]'"], done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.tier("test")  # a process for each command
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--version",), 0),
        (("drill", "--help"), 0),
        (("audit", "--help"), 0),
        (("acls", "--principal", "User:x"), 0),
        (("config", "settings"), 0),
        (("config", "check", "--listen", "h:1", "--broker", "h:2", "--node-id", "3"), 0),
        (("config", "show", "--origin", "--listen", "h:1", "--broker", "h:2", "--node-id", "3"), 0),
        (("health", NOBODY), 3),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, tuple) else "",
)
def test_without_the_extra_the_rest_works(words: tuple[str, ...], code: int, tmp_path: Path) -> None:
    done = without("audit", *words, cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done


def test_what_needs_a_checkout_is_left_out_of_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sidecar.drill.drills import names, playing, upgrade
    from sidecar.drill.drills.spec import Drill

    assert tuple(d.name for d in playing.DRILLS) == names.NAMES
    played: list[str] = []
    monkeypatch.setattr(upgrade, "ROOT", tmp_path)

    def play_all(drills: list[Drill], *args: Any) -> list[Any]:
        played.extend(d.name for d in drills)
        return []

    monkeypatch.setattr(playing, "play_all", play_all)
    done = call("drill", "all", "--n", "1", "-o", "json", "--out", str(tmp_path))
    assert done.exit_code == 0 and played == [n for n in names.NAMES if n != "rolling-upgrade"]
    assert "rolling-upgrade is left out" in done.stderr and done.stdout == ""
    alone = call("drill", "rolling-upgrade", "--out", str(tmp_path))
    assert alone.exit_code == Code.USAGE and "git history" in error_lines(alone, Code.USAGE)[0]


@pytest.mark.parametrize(
    "words",
    [
        ("owner", "{}", "--group", "g", *AT),
        ("history", "g", "--since", "{}", *AT),
        ("drill", "{}"),
        ("groups", "{}"),
        ("groups", "list", "--{}"),
        ("--{}",),
        ("groups", "list", "--watch", "{}"),
    ],
    ids=" ".join,
)
def test_what_was_typed_is_repeated_with_escapes(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "partitions", lambda self: 1)
    monkeypatch.setattr(Reader, "read", lambda self, p, *args: RecordsRead(p))
    done = call(*(word.replace("{}", "a\x1b[31m\u202eb") for word in words))
    assert done.exit_code == Code.USAGE
    assert "\x1b" not in done.output and "\u202e" not in done.output, repr(done.output)


def test_a_number_that_no_partition_has_is_part_of_a_name() -> None:
    """Symptom: Python reads no number of so many digits, and that was a bug of this program."""
    assert place_of("t-" + "1" * 5000) is None and place_of("t-2147483647") == ("t", 2147483647)


@pytest.mark.parametrize("error", [DrillError("no port is free"), PermissionError(13, "Permission denied")], ids=repr)
def test_a_cluster_that_cannot_be_set_up_is_3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception
) -> None:
    from sidecar.drill.drills import playing

    def broken(*args: Any) -> None:
        raise error

    monkeypatch.setattr(playing, "play_all", broken)
    lines = error_lines(call("drill", "stop", "-o", "json", "--out", str(tmp_path)), Code.UNREACHED)
    assert any("cannot be set up" in line for line in lines)


def test_without_java_a_drill_is_3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from sidecar.drill.artifacts import ArtifactError
    from sidecar.drill.drills import playing

    def no_java(*args: Any) -> None:
        raise ArtifactError("no Java found")

    monkeypatch.setattr(playing, "play_all", no_java)
    assert "Java" in error_lines(call("drill", "stop", "-o", "json", "--out", str(tmp_path)), Code.UNREACHED)[-1]
