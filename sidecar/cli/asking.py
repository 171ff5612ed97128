"""Requests of commands to a sidecar's admin endpoint: by HTTP or HTTPS, with a token if it needs one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.connect import address
from sidecar.cli.exits import Code, Failed

if TYPE_CHECKING:
    from urllib.error import HTTPError

TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file whose first line is a token of the admin endpoint.")
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Whose certificates count for https, PEM. Unset: the system's."),
]
WHERE = "[https://]HOST:PORT"
"""Form of an admin address."""
HTTP, HTTPS = "http://", "https://"
ANSWER_S = 10.0
Fields = Mapping[str, type]
READY: Fields = {"ready": bool, "problems": list}
"""Fields of the answer of /readyz; other fields may be missing."""
GROUP: Fields = {"group": str}
NO_GROUP = {"problem": "no such group"}
"""Answer of /group for a name that is no group's."""
IS_IT = "Is it the setting `admin` of a running sidecar of this version?"


@dataclass(frozen=True)
class Asking:
    """Access to admin endpoints. `token_file`: has a token of theirs; `ca`: trusted certificates."""

    token_file: Path | None = None
    ca: Path | None = None

    def get(self, admin: str, path: str, fields: Fields, timeout_s: float = ANSWER_S) -> Mapping[str, Any]:
        """Returns the JSON that the endpoint at `admin` ([https://]HOST:PORT) answers, with these fields, or NO_GROUP,
        also if the sidecar is not ready. Raises Failed if it answers anything else or nothing, or needs a token."""
        from http.client import HTTPException
        from urllib.error import HTTPError

        from sidecar.kafka.errors import plain

        try:
            try:
                answer = self._fetch(admin, path, timeout_s)
            except HTTPError as exc:
                answer = _error_json(exc, admin, path)
            return _with(fields, answer, admin, path)
        except HTTPException as exc:
            what = f"{admin}: it does not answer as HTTP: {type(exc).__name__}"
            raise Failed(Code.UNREACHED, what, IS_IT + " With TLS, write https:// before it.") from None
        except (OSError, ValueError, RecursionError) as exc:  # URLError is one of the first
            then = "Is it the setting `admin` of a running sidecar? With TLS, write https:// before it."
            raise Failed(Code.UNREACHED, f"{admin}: {plain(exc)}", then) from None

    def _fetch(self, admin: str, path: str, timeout_s: float) -> Any:
        import ssl
        from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

        from sidecar.kafka.resolver import joined

        secure = admin.startswith(HTTPS)
        host, port = address(admin.removeprefix(HTTPS if secure else HTTP).rstrip("/"))
        request = Request(f"{HTTPS if secure else HTTP}{joined([(host, port)])}{path}")
        if self.token_file is not None:
            if not secure and not _is_here(host):
                then = "Write https:// before the address."
                raise Failed(Code.USAGE, "A token is sent by https only, or to this machine.", then)
            request.add_unredirected_header("Authorization", f"Bearer {_token(self.token_file)}")
        context = ssl.create_default_context(cafile=self.ca) if secure else None
        # Not by a proxy: it would have the token, and an admin endpoint is near.
        with build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open(request, timeout=timeout_s) as res:
            return json.load(res)


def _error_json(exc: HTTPError, admin: str, path: str) -> Any:
    """Returns the JSON of an answer with an error code. Raises Failed, HTTPException, OSError."""
    try:
        answer = json.load(exc)
    except (ValueError, RecursionError):
        raise Failed(Code.UNREACHED, f"{admin}{path}: {exc}", "Is that sidecar of the same version?") from None
    problem = answer.get("problem", exc) if isinstance(answer, dict) else exc
    if exc.code == 401:
        raise Failed(Code.UNREACHED, f"{admin}: {problem}", "Name one with --token-file.")
    if exc.code == 421:
        then = "Use an address instead, or add the name to that sidecar's setting admin_access.hosts."
        raise Failed(Code.UNREACHED, f"{admin}: {problem}", then)
    return answer


def _with(fields: Fields, answer: Any, admin: str, path: str) -> Mapping[str, Any]:
    """Returns the answer if it has these fields, or is NO_GROUP. Raises Failed."""
    if answer == NO_GROUP and fields is GROUP:
        return NO_GROUP
    told: dict[str, Any] = answer if isinstance(answer, dict) else {}
    if lacking := [name for name, kind in fields.items() if not isinstance(told.get(name), kind)]:
        if isinstance(problem := told.get("problem"), str):
            raise Failed(Code.UNREACHED, f"{admin}: {problem}", "Ask another sidecar, or try again.")
        raise Failed(Code.UNREACHED, f"{admin}{path}: its answer has no {', '.join(lacking)}.", IS_IT)
    return told


def _token(path: Path) -> str:
    """Returns the first token of the file. Raises Failed."""
    from sidecar.kafka.errors import plain

    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise Failed(Code.USAGE, f"{path}: {plain(exc)}", "Name a file whose first line is a token.") from None
    for line in lines:
        if line.strip() and not line.startswith("#"):
            return line.strip()
    raise Failed(Code.USAGE, f"{path}: there is no token in it.", "It has a token in each line, as the sidecar's has.")


def _is_here(host: str) -> bool:
    from sidecar.process.admin_access import is_loopback

    return is_loopback(host)
