"""Decides which requests the admin endpoint answers: names in Host, tokens, the page's cookie, TLS. It also has the
headers for browsers.

It decides nothing about content. A request is refused, in this order:
    421  its Host is a name that is not this endpoint's: a page elsewhere has that name lead here (DNS rebinding)
    401  it needs a token, and has none
Only a browser can be misled by a name. So any name is good for a request with a token of its own, and for probes and
scrapes (/livez, /readyz, /metrics), whose answers are no secret.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sidecar.kafka.resolver import is_address
from sidecar.link.ports import Figures, Logger
from sidecar.process.sections import AdminAccess
from sidecar.process.setting_kinds import split

PROBES, METRICS = ("/livez", "/readyz"), "/metrics"
COOKIE = "sidecar_admin"
TOKEN_MIN = 16
"""Least number of characters of a token: a short one can be guessed."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class AdminFault(Exception):
    """A file that `admin_access` names cannot be used; the text has the reason."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """Returns the name or address in a Host header, without its port."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].removesuffix(".")


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Reads tokens, one in a line; two while one replaces the other. Raises AdminFault, without a token in it."""
    try:
        lines = path.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "it is not text"
        raise AdminFault(f"token_file {path}: {reason}") from None
    tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not tokens:
        raise AdminFault(f"token_file {path}: there is no token in it")
    if any(len(t) < TOKEN_MIN or not t.isascii() or not t.isprintable() or " " in t for t in tokens):
        raise AdminFault(f"token_file {path}: a token has at least {TOKEN_MIN} characters, ASCII without spaces")
    return tuple(t.encode() for t in tokens)


def tls_context(s: AdminAccess) -> ssl.SSLContext:
    """Raises AdminFault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_chain(context, s)
    return context


def load_chain(context: ssl.SSLContext, s: AdminAccess) -> None:
    """Raises AdminFault."""
    assert s.tls_certificate is not None
    try:
        password = "" if s.tls_key_password_file is None else s.tls_key_password_file.read_text().rstrip("\r\n")
        # Without this OpenSSL would ask at the terminal for the password of a key that has one.
        context.load_cert_chain(s.tls_certificate, s.tls_key, lambda: password)
    except (OSError, ValueError) as exc:  # ssl.SSLError is an OSError
        reason = getattr(exc, "reason", None) or getattr(exc, "strerror", None) or type(exc).__name__
        key = f", tls_key {s.tls_key}" if s.tls_key is not None else ""
        raise AdminFault(f"tls_certificate {s.tls_certificate}{key}: {reason}") from None


class Files:
    """A group of files that is read again when one of them has changed. The last readable content stays valid."""

    def __init__(self, paths: Iterable[Path], read: Callable[[], None]) -> None:
        self._paths = tuple(paths)
        self._read = read
        self._seen = self._looks()

    def _looks(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_look(p) for p in self._paths)

    def refresh(self) -> bool:
        """Returns whether the files were read again. Raises AdminFault, once for each change."""
        looks = self._looks()
        if looks == self._seen:
            return False
        self._seen = looks
        self._read()
        return True


def _look(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class Access:
    """The rules of the endpoint. Raises AdminFault if a file that the settings name cannot be used: an endpoint that
    should be closed is never open."""

    def __init__(
        self,
        address: str,
        settings: AdminAccess,
        log: Logger,
        figures: Figures,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.settings = s = settings
        self.log, self.figures = log, figures
        self._wall_s = wall_s
        self._key = secrets.token_bytes(32)
        self._tokens: tuple[bytes, ...] = ()
        self._files: list[Files] = []
        self.context: ssl.SSLContext | None = None
        if s.token_file is not None:
            self._files.append(Files([s.token_file], self._read_tokens))
            self._read_tokens()
        if s.tls_certificate is not None:
            paths = [p for p in (s.tls_certificate, s.tls_key, s.tls_key_password_file) if p is not None]
            self._files.append(Files(paths, self._read_chain))
            self.context = tls_context(s)
        host = split(address)[0].lower()
        own = {"localhost", host, socket.gethostname().lower()} - {"", "*"}
        self._hosts = frozenset(own | {h.lower().rstrip(".") for h in s.hosts})
        self._warn(host)

    def _warn(self, host: str) -> None:
        if is_loopback(host):
            return
        missing = [n for n, given in (("a token", self._tokens), ("TLS", self.context)) if not given]
        if missing:
            self.log.warning(
                "the admin endpoint is open to the network",
                without=" and ".join(missing),
                remedy="set admin_access.token_file and admin_access.tls_certificate, or take a loopback address",
            )

    # ---- files --------------------------------------------------------------------------------------------
    def _read_tokens(self) -> None:
        assert self.settings.token_file is not None
        self._tokens = read_tokens(self.settings.token_file)

    def _read_chain(self) -> None:
        tls_context(self.settings)  # so that files that do not fit each other change nothing
        assert self.context is not None
        load_chain(self.context, self.settings)

    def refresh(self) -> None:
        """Reads changed files again. It may block, and is meant for a thread."""
        for files in self._files:
            try:
                if files.refresh():
                    self.log.info("files of admin_access read again")
            except AdminFault as exc:
                self.log.error("files of admin_access not read: what was read before counts", problem=str(exc))

    # ---- requests -----------------------------------------------------------------------------------------
    @property
    def guarded(self) -> bool:
        """Whether requests need a token."""
        return bool(self._tokens)

    def open_path(self, path: str) -> bool:
        """Returns whether this path needs no token."""
        return not self.guarded or path in PROBES or (path == METRICS and self.settings.metrics_open)

    def knows_host(self, header: str | None) -> bool:
        """Returns whether Host names this endpoint. An IP address always does, as it is no other site's name. `*` in
        `hosts`: any name."""
        host = host_of(header or "")
        return host in self._hosts or "*" in self._hosts or is_address(host)

    def is_token(self, text: str) -> bool:
        return self._token(text) is not None

    def _token(self, text: str) -> bytes | None:
        """Returns the configured token that equals this text, or None."""
        given = text.strip().encode(errors="replace")  # bytes that are no text stand there as surrogates
        configured = None
        for token in self._tokens:  # all of them, so that the time tells nothing
            if hmac.compare_digest(token, given):
                configured = token
        return configured

    def bearer(self, authorization: str | None) -> bool:
        scheme, _, text = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(text)

    def new_cookie(self, text: str) -> str | None:
        """Returns the cookie that the page keeps in place of this token; None: the token is wrong. The cookie ends with
        the session, with the token, and with this process."""
        token = self._token(text)
        if token is None:
            return None
        until = str(int(self._wall_s()) + self.settings.session_s)
        return f"{until}.{self._signed(until, token)}"

    def is_cookie(self, text: str | None) -> bool:
        until, _, mac = (text or "").partition(".")
        if not (until.isascii() and until.isdigit() and len(until) <= 12 and mac.isascii()):
            return False
        valid = False
        for token in self._tokens:
            valid |= hmac.compare_digest(self._signed(until, token), mac)
        return valid and self._wall_s() < int(until)

    def _signed(self, until: str, token: bytes) -> str:
        return hmac.new(self._key, until.encode() + b"\0" + token, hashlib.sha256).hexdigest()
