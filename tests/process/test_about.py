"""A sidecar reports its settings, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from sidecar.cli.doctor.facts import ABOUT
from sidecar.process.about import MASK, _leaves, about, shown
from sidecar.process.settings import load

GIVEN: dict[str, Any] = {"listen": "h:1", "broker": "h:2", "node_id": 3}
FILE = "drain_ms: 5\nstate:\n  replicas: 2\n  topic: t\ngroups:\n  include: [file]\n"


def test_every_setting_has_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(FILE)
    monkeypatch.setenv("SIDECAR_GROUPS__INCLUDE", '["env"]')
    monkeypatch.setenv("SIDECAR_STATE", '{"topic": "e"}')
    monkeypatch.setenv("sidecar_broker_wait_ms", "7")
    found = {s.name: (s.value, s.origin) for s in shown(load(path, GIVEN), path, GIVEN)}
    assert found["listen"] == ("h:1", "command line") and found["node_id"] == (3, "command line")
    assert found["groups.include"] == (["env"], "environment")
    assert found["state.topic"] == ("e", "environment")
    assert found["state.replicas"] == (2, "file") and found["drain_ms"] == (5, "file")
    assert found["broker_wait_ms"] == (7, "environment")
    assert found["admin"] == (None, "default") and found["groups.exclude"] == ([], "default")


def test_what_is_told_has_every_setting_and_the_clock() -> None:
    settings = load(None, GIVEN)
    told = about(settings)
    assert told["node_id"] == 3 and told["version"] and isinstance(told["wall_ms"], int)
    assert told["settings"] == {s.name: s.value for s in shown(settings, None, GIVEN)}


class SecretSettings(BaseModel):
    password: str = "a"
    key_password: str = "/b"
    password_file: str = "/where"
    plain: str = "c"
    empty_secret: str = ""
    typed: SecretStr = SecretStr("d")
    more: dict[str, str] = {"sasl.jaas.config": "e", "sasl.mechanism": "PLAIN"}


def test_secrets_are_masked() -> None:
    found = {name: value for name, value, _ in _leaves(SecretSettings(), "x.")}
    assert found == {
        "x.password": MASK,
        "x.key_password": MASK,
        "x.password_file": "/where",
        "x.plain": "c",
        "x.empty_secret": "",
        "x.typed": MASK,
        "x.more": {"sasl.jaas.config": MASK, "sasl.mechanism": "PLAIN"},
    }


def test_it_has_the_fields_that_the_doctor_wants() -> None:
    answer = about(load(None, GIVEN))
    assert all(isinstance(answer[name], kind) for name, kind in ABOUT.items())
