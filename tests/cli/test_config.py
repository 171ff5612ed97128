"""`sidecar config`, `--version`, and the helpers that all commands share."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
import yaml
from typer.testing import CliRunner, Result

from sidecar.cli import output
from sidecar.cli.connect import address, client_of
from sidecar.cli.exits import MEANINGS, Code, Failed
from sidecar.cli.main import app
from sidecar.cli.output import Output, print_rows, run
from sidecar.cli.program import Program

NEEDED = ("--listen", "h:1", "--broker", "h:2", "--node-id", "3")


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("drain_ms: -1\nnonsense: 2\nlisten: nowhere\n")
    done = call("config", "check", "--config", str(path), "--broker", "h:1", "--node-id", "1")
    assert done.exit_code == Code.USAGE
    assert all(f"  {name}:" in done.output for name in ("drain_ms", "nonsense", "listen"))
    assert call("config", "check", *NEEDED).output == "The settings are valid.\n"
    assert call("config", "check", "--config", str(tmp_path / "none"), *NEEDED).exit_code == Code.USAGE


def test_files_that_cannot_be_used_are_told(tmp_path: Path) -> None:
    """All of those that a sidecar would read when it starts, and in its words."""
    gone, path, empty = tmp_path / "gone", tmp_path / "s.yaml", tmp_path / "empty"
    empty.write_text("")
    path.write_text(
        f"{{bootstrap: 'h:1', command_config: {gone}, broker_command_config: {empty}, tls: {{certificate: {gone}}}, "
        f"admin: 1234, admin_access: {{token_file: {empty}, tls_certificate: {gone}}}}}"
    )
    done = call("config", "check", "--config", str(path), *NEEDED)
    assert done.exit_code == Code.USAGE
    assert done.output.splitlines()[1:-1] == [
        f"  command_config: {gone}: No such file or directory",
        f"  tls.certificate {gone}: No such file or directory",
        f"  admin_access.token_file {empty}: there is no token in it",
        f"  admin_access.tls_certificate {gone}: No such file or directory",
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_settings_are_shown_with_their_origin(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_DRAIN_MS", "5")
    done = call("config", "show", "--origin", "--changed", *NEEDED, "-o", output)
    rows = yaml.safe_load(done.output) if output == "yaml" else [json.loads(x) for x in done.output.splitlines()]
    assert rows[-1] == {"setting": "drain_ms", "value": 5, "origin": "environment"}
    assert {r["setting"] for r in rows} == {"listen", "broker", "node_id", "drain_ms"}
    assert "origin" not in call("config", "show", *NEEDED).output


def test_the_version_names_the_kernel() -> None:
    done = call("--version")
    assert done.exit_code == 0 and done.output.startswith("kafka-group-sidecar ") and "(kernel " in done.output


def test_drills_have_the_arguments_of_make_drill() -> None:
    assert call("drill", "no-such-drill").exit_code == 2


@pytest.mark.parametrize("text", ["", "h", "h:", "h:0", "h:x", ":1", "h:70000", "h:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="is not HOST:PORT"):
        address(text)


def test_a_file_of_properties_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(Failed) as failed:
        client_of(tmp_path / "none")
    assert failed.value.code is Code.USAGE
    assert failed.value.what == f"{tmp_path / 'none'}: No such file or directory"


def test_every_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Code)


def test_rows_are_printed_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [{"a": "x", "n": [1, 2]}, {"a": "[y]", "n": None}]
    print_rows(rows, Output.JSON)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows
    print_rows(rows, Output.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == rows
    print_rows(rows, Output.TABLE)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["a", "n"], ["x", "1", "2"], ["[y]"]]


def test_a_watch_goes_on_where_a_look_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks: list[Code | Failed] = [Code.OK, Failed(Code.UNREACHED, "gone", "wait"), Code.FINDINGS]

    def show() -> Code:
        found = looks.pop(0)
        if isinstance(found, Failed):
            raise found
        return found

    def sleep(seconds: float) -> None:
        assert seconds == 0.5
        if not looks:
            raise KeyboardInterrupt

    monkeypatch.setattr(output, "time", SimpleNamespace(sleep=sleep))
    with pytest.raises(typer.Exit) as ended:
        run(show, 0.5)
    assert (ended.value.exit_code, looks) == (Code.INTERRUPTED, [])
    assert "gone" in capsys.readouterr().err


def test_what_fails_says_what_to_do_next() -> None:
    root = typer.Typer(cls=Program)

    @root.command()
    def fails() -> None:
        raise Failed(Code.UNREACHED, "what is wrong", "what to do")

    root.callback()(lambda: None)
    done = CliRunner().invoke(root, ["fails"])
    assert (done.exit_code, done.stderr) == (Code.UNREACHED, "what is wrong\nwhat to do\n")


def test_nobody_at_the_address_is_told_in_two_lines() -> None:
    done = call("groups", "list", "--bootstrap", "127.0.0.1:1")
    assert done.exit_code == Code.UNREACHED
    assert done.output.splitlines()[0].endswith("127.0.0.1:1: Connection refused")
    assert len(done.output.splitlines()) == 2 and "--command-config" in done.output
    done = call("groups", "describe", "g", "--admin", "127.0.0.1:1")
    assert done.exit_code == Code.UNREACHED and "`admin`" in done.output
    assert done.output.splitlines()[0] == "127.0.0.1:1: Connection refused"
    done = call("groups", "describe", "g", "--admin", "no.invalid:1")
    assert "Errno" not in done.output and "urlopen" not in done.output
    assert call("groups", "describe", "g").exit_code == Code.USAGE
