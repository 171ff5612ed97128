"""Requests of commands to a sidecar's admin endpoint: by HTTP or HTTPS, with a token if it needs one."""

from __future__ import annotations

import json
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


@dataclass(frozen=True)
class Asking:
    """Access to admin endpoints. `token_file`: has a token of theirs; `ca`: trusted certificates."""

    token_file: Path | None = None
    ca: Path | None = None

    def get(self, admin: str, path: str, timeout_s: float = ANSWER_S) -> Any:
        """Returns the JSON that the endpoint at `admin` ([https://]HOST:PORT) answers, also if it is `{"problem": ...}`
        or the sidecar is not ready. Raises Failed if it does not answer, or needs a token."""
        from urllib.error import HTTPError

        from sidecar.kafka.errors import plain

        try:
            return self._fetch(admin, path, timeout_s)
        except HTTPError as exc:
            return _error_json(exc, admin, path)
        except (OSError, ValueError) as exc:  # URLError is one of the first
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
    """Returns the JSON of an answer with an error code. Raises Failed."""
    try:
        answer = json.load(exc)
    except ValueError:
        raise Failed(Code.UNREACHED, f"{admin}{path}: {exc}", "Is that sidecar of the same version?") from None
    if exc.code == 401:
        raise Failed(Code.UNREACHED, f"{admin}: {answer['problem']}", "Name one with --token-file.")
    if exc.code == 421:
        then = "Use an address instead, or add the name to that sidecar's setting admin_access.hosts."
        raise Failed(Code.UNREACHED, f"{admin}: {answer['problem']}", then)
    return answer


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
