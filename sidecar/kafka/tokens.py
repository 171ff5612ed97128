"""Tokens for OAUTHBEARER (KIP-255, KIP-768): from a server, by a client's credentials; from a file; or unsecured, which
brokers take in tests only.

A token is renewed when four fifths of its life are over. To get one takes a request, and the server may hang: so each
fetch has a thread of its own, for which the end of the process does not wait. All connections share the fetch that is
under way, and go on with the token of before as long as that lives.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sidecar.kafka.errors import SecurityError, plain

TIMEOUT_S = 10.0
GIVE_UP_S = TIMEOUT_S + 2.0
"""Time after which nobody waits for a fetch any more: a server can send its answer byte by byte. It is longer than
TIMEOUT_S, whose error says more."""
FAILED_S = 1.0
"""Time for which a failed fetch counts: connections that come meanwhile do not ask the server, too."""
KEPT = 0.8
FORGET_S = 30.0
LIFE_S = 3_600.0
"""Life of an unsecured token, and of one without an end, in seconds."""


@dataclass
class Tokens:
    """The current token. `url`: of the server, or a file URL without user and password; `client_id`, `secret`: the
    client's, for the server; `principal`: of an unsecured token."""

    url: str = field(repr=False)
    client_id: str = ""
    secret: str = field(default="", repr=False)
    scope: str = ""
    principal: str = ""
    _renew_s: float = field(default=0.0, repr=False, compare=False)
    _forgot_s: float = field(default=0.0, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.url = without_user(self.url)
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_fetch", "_good")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._fetch: Future[tuple[str, float]] | None = None
        """The last fetch, which may be under way."""
        self._good: Future[tuple[str, float]] | None = None
        """The last fetch that gave a token; None when a broker has refused that."""
        self._since_s = 0.0
        """Monotonic time at which it began, or failed, in seconds."""

    def forget(self) -> None:
        """Lets another token be fetched, after a broker has refused this one; not more often than every FORGET_S."""
        if time.time() > self._forgot_s + FORGET_S:
            self._forgot_s, self._renew_s, self._good = time.time(), 0.0, None

    def current(self) -> tuple[str, float]:
        """Returns a token and its end, in seconds since 1970. Raises SecurityError. It may take TIMEOUT_S."""
        return self.fetch().result()

    def fetch(self) -> Future[tuple[str, float]]:
        """Returns the fetch of a token, which is over or under way. Its result is that of `current`."""
        with self._lock:
            if self._fetch is None or not self._counts(self._fetch):
                fetch = self._fetch = Future()
                fetch.set_running_or_notify_cancel()  # a connection that gives up cannot cancel it for the others
                self._since_s = time.monotonic()
                threading.Thread(target=self._run, args=(fetch,), name="token", daemon=True).start()
            good, pending = self._good, not self._fetch.done() or self._fetch.exception() is not None
            if good is not None and pending and good.result()[1] > time.time() + TIMEOUT_S:
                return good
            return self._fetch

    def _counts(self, fetch: Future[tuple[str, float]]) -> bool:
        since_s = time.monotonic() - self._since_s
        if not fetch.done():
            return since_s < GIVE_UP_S
        return time.time() < self._renew_s if fetch.exception() is None else since_s < FAILED_S

    def _run(self, fetch: Future[tuple[str, float]]) -> None:
        now_s = time.time()
        try:
            token = self._fetched(now_s)
        except Exception as exc:  # noqa: BLE001 - whoever waits raises it
            self._since_s = time.monotonic()
            fetch.set_exception(exc)
        else:
            ends_s = _ends_s(token, now_s)
            self._renew_s = now_s + KEPT * (ends_s - now_s)
            fetch.set_result((token, ends_s))
            self._good = fetch

    def _fetched(self, now_s: float) -> str:
        if self.principal:
            return unsecured(self.principal, now_s)
        from http.client import HTTPException  # these take a while, and few need them
        from urllib import parse, request

        try:
            if self.url.startswith("file:"):
                with request.urlopen(self.url, timeout=TIMEOUT_S) as res:
                    return str(res.read().decode().strip())
            form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
            credentials = f"{parse.quote_plus(self.client_id)}:{parse.quote_plus(self.secret)}".encode()
            headers = {"Authorization": "Basic " + base64.b64encode(credentials).decode(), "Accept": "application/json"}
            req = request.Request(self.url, parse.urlencode(form).encode(), headers)
            with request.urlopen(req, timeout=TIMEOUT_S) as res:
                return str(json.load(res)["access_token"])
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as exc:
            why = "its answer has no access_token" if isinstance(exc, LookupError | TypeError) else plain(exc)
            raise self.fault(why) from None

    def fault(self, why: str) -> SecurityError:
        return SecurityError(f"no token from {self.url.partition('?')[0]}: {why}")


def without_user(url: str) -> str:
    """Returns the URL without a user, which Java's client ignores too: its password would be in every message."""
    from urllib import parse

    parts = parse.urlsplit(url)
    return parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if "@" in parts.netloc else url


def unsecured(principal: str, now_s: float) -> str:
    """Returns an unsigned JSON web token, as OAuthBearerUnsecuredLoginCallbackHandler makes it."""
    parts = ({"alg": "none"}, {"sub": principal, "iat": int(now_s), "exp": int(now_s + LIFE_S)})
    return ".".join(_base64(json.dumps(part).encode()) for part in parts) + "."


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _ends_s(token: str, now_s: float) -> float:
    """Returns the end of the token, in seconds since 1970; LIFE_S from now if the token cannot be read."""
    try:
        middle = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))["exp"])
    except (IndexError, ValueError, KeyError, TypeError):
        return now_s + LIFE_S
