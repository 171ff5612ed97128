"""A sidecar's self-description: version, settings and their origin, its clock. Secrets are masked."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, SecretBytes, SecretStr

from sidecar.front.certificates import TlsError, expiry_of
from sidecar.native import COMPILED
from sidecar.process.settings import Settings
from sidecar.process.version import package_version

MASK = "********"
_SECRET = re.compile(r"(password|passphrase|secret|jaas|credential|token)(?!.*(file|path|location)$)", re.IGNORECASE)
"""Names of settings whose values are secret; the path of a file is none."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting. `name`: its path with dots; `value`: in types that JSON has; `origin`: default, file, environment or
    command line."""

    name: str
    value: Any
    origin: str


def kernel() -> str:
    return "compiled" if COMPILED else "python"


def about(settings: Settings) -> dict[str, object]:
    """Returns the answer of /about. `wall_ms`: the clock of this process at this moment, Unix milliseconds."""
    return {
        "version": package_version(),
        "node_id": settings.node_id,
        "role": settings.role,
        "kernel": kernel(),
        "python": platform.python_version(),
        "wall_ms": int(time.time() * 1000),
        "certificate_ends_ms": _certificate_ends_ms(settings),
        "settings": {name: value for name, value, _ in _leaves(settings, "")},
    }


def _certificate_ends_ms(settings: Settings) -> int:
    """Returns the end of the clients' listener's certificate, as the file is now. 0: there is none, or it cannot be
    read, which the log has reported."""
    certificate = settings.tls.certificate
    try:
        return 0 if certificate is None else int(expiry_of(certificate) * 1000)
    except TlsError:
        return 0


def shown(settings: Settings, config: Path | None, overrides: Mapping[str, Any]) -> list[Shown]:
    """Returns every setting. `config` and `overrides` are those that the settings were loaded with."""
    data = {} if config is None else yaml.safe_load(config.read_text()) or {}
    rows = []
    for name, value, is_set in _leaves(settings, ""):
        origin = "default"
        if overrides.get(name) is not None:
            origin = "command line"
        elif _in_environment(name):
            origin = "environment"
        elif is_set and _within(data, name.split(".")):
            origin = "file"
        rows.append(Shown(name, value, origin))
    return rows


def settings_known() -> list[dict[str, Any]]:
    """Returns all known settings: name, default (None: there is none), meaning."""
    return list(_known(Settings, ""))


def _known(model: type[BaseModel], path: str) -> Iterator[dict[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _known(kind, f"{path}{name}.")
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            meaning = field.description or ""
            yield {"setting": path + name, "default": _plain(path + name, default), "meaning": meaning}


def _leaves(model: BaseModel, path: str) -> Iterator[tuple[str, Any, bool]]:
    """Yields name, value and whether the value was given."""
    for field in type(model).model_fields:
        value = getattr(model, field)
        if isinstance(value, BaseModel):
            yield from _leaves(value, f"{path}{field}.")
        else:
            yield f"{path}{field}", _plain(path + field, value), field in model.model_fields_set


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, SecretStr | SecretBytes):
        return MASK if value.get_secret_value() else ""
    if isinstance(value, tuple | list):
        return [_plain(name, v) for v in value]
    if isinstance(value, Mapping):
        return {str(k): _plain(f"{name}.{k}", v) for k, v in value.items()}
    if isinstance(value, str) and value and _SECRET.search(name):
        return MASK
    return str(value) if isinstance(value, Path) else value


def _in_environment(name: str) -> bool:
    """Returns whether a variable gives this setting: one of its own, or that of a section above it, as JSON."""
    parts = name.split(".")
    given = {k.upper(): v for k, v in os.environ.items()}
    for n in range(len(parts), 0, -1):
        text = given.get("SIDECAR_" + "__".join(parts[:n]).upper())
        if text is not None and (n == len(parts) or _within(_json(text), parts[n:])):
            return True
    return False


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _within(data: Any, path: list[str]) -> bool:
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True
