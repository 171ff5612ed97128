"""docs/use/cli.md is current: its exit codes, its commands, and the checks of the doctor."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from sidecar.cli.doctor.checks import examine
from sidecar.cli.doctor.model import Facts
from sidecar.cli.exits import MEANINGS
from sidecar.cli.main import app

DOC = (Path(__file__).parent.parent.parent / "docs/use/cli.md").read_text()


def test_the_exit_codes_are_those_of_the_program() -> None:
    assert re.findall(r"^\| (\d+) \| (.*) \|$", DOC, re.M) == [(str(int(c)), text) for c, text in MEANINGS.items()]


def test_every_command_is_told_and_every_one_that_is_told_is_there() -> None:
    root = typer.main.get_command(app)
    there = set()
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        there |= {f"{name} {sub}" for sub in getattr(command, "commands", {})} or {name}
    table = DOC.partition("## Which question")[2].partition("**Output.**")[0]
    told = set(re.findall(r"`sidecar ((?:groups|config|audit|state) [a-z]+|[a-z]+)", table))
    told |= {f"groups {verb}" for verb in re.findall(r"`(release|rebalance)`", table)}
    assert told - there == set()
    # `run` and `health` are for machines: README.md and docs/operate/operations.md have them.
    assert {c for c in there if not c.startswith("audit ")} - told == {"run", "health", "history"}


def test_the_commands_with_formats_and_with_watch_are_those_that_are_told() -> None:
    root = typer.main.get_command(app)
    options: dict[str, set[str]] = {}
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        for sub, leaf in getattr(command, "commands", {"": command}).items():
            options[f"{name} {sub}".strip()] = {option for p in leaf.params for option in p.opts}

    def named(text: str, of: str) -> set[str]:
        """Returns the commands in the text; those at its end are `of` this one."""
        alone, _, subs = text.partition(f"of the {of} ")
        return {*re.findall(r"`([a-z ]+)`", alone), *(f"{of} {name}" for name in re.findall(r"`([a-z]+)`", subs))}

    _, _, text = DOC.partition("These have no `-o`: ")
    assert {c for c, of in options.items() if "-o" not in of} == named(text.partition(". Tables")[0], "audit")
    watched = re.search(r"\*\*Repeat\.\*\* ((?:.|\n)*?)take `--watch", DOC)
    assert watched is not None
    assert {c for c, of in options.items() if "--watch" in of} == named(watched[1], "groups")


def test_every_check_of_the_doctor_is_told() -> None:
    names = [c.name for c in examine(Facts("__group_state"))]
    assert re.findall(r"^\| ([a-z ]+) \| .*\| .*\|$", DOC.partition("## Doctor")[2].partition("## Exit")[0], re.M) == [
        "check",
        *names,
    ]
