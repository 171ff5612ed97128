"""How commands ask a sidecar's admin endpoint: by HTTP or HTTPS, with a token if it wants one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from urllib.error import HTTPError

TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file whose first line is a token of the admin endpoint.")
]
Authority = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Whose certificates count for https, PEM. Unset: the system's."),
]
HTTPS = "https://"


def fetch(admin: str, path: str, timeout_s: float, token_file: Path | None = None, ca: Path | None = None) -> Any:
    """JSON from the endpoint at `admin`: HOST:PORT, or with https:// before it. Raises OSError (of urllib, too: an
    HTTPError has the status and the body), and ValueError if it is no JSON."""
    import json
    import ssl
    from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

    base = admin.rstrip("/") if "://" in admin else f"http://{admin}"
    request = Request(base + path)
    if token_file is not None:
        if not base.startswith(HTTPS) and not _is_here(base):
            raise OSError("a token is sent by https only, or to this machine: write https:// before the address")
        request.add_unredirected_header("Authorization", f"Bearer {_token(token_file)}")
    context = ssl.create_default_context(cafile=ca) if base.startswith(HTTPS) else None
    with build_opener(ProxyHandler({}), HTTPSHandler(context=context)).open(request, timeout=timeout_s) as res:
        return json.load(res)


def problem_of(exc: HTTPError) -> str:
    """What the endpoint says of a request that it refuses."""
    import json

    try:
        return str(json.load(exc)["problem"])
    except (ValueError, KeyError, TypeError):
        return str(exc)


def _token(path: Path) -> str:
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            return line.strip()
    raise OSError(f"{path}: there is no token in it")


def _is_here(base: str) -> bool:
    from urllib.parse import urlsplit

    from sidecar.process.admin_access import is_loopback

    return is_loopback(urlsplit(base).hostname or "")
