"""The sidecar's own connection to a broker. It is not the path that clients' requests take."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import deque
from collections.abc import Mapping
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, Protocol, cast

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.answers import check_answers
from sidecar.kafka.credentials import Login
from sidecar.kafka.errors import SecurityError, plain
from sidecar.kafka.resolver import addresses_of, connected
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.kafka.tokens import GIVE_UP_S
from sidecar.wire.apis import Api
from sidecar.wire.frames import SIZE, request_frame, response_body
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.generated import sasl_handshake as sh
from sidecar.wire.primitives import WireError

RESPONSE_BYTES = 256 << 20
"""Default of `limits.response_bytes`; a longer response closes the connection."""
OPEN_S = 2.0
"""Time for a connection to a known address and its first answer. The kernel takes connections even if its broker stands
still."""
AUTHENTICATE_S = 10.0
"""Time for all steps in which a client authenticates again. Other requests wait behind them."""
AGAIN_AFTER = 0.85
"""Part of a session's life after which the client authenticates again, as Java's does."""
NO_TLS = "the broker's listener does not speak TLS: look at security.protocol"
NO_CERTIFICATE = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN", "CERTIFICATE_EXPIRED", "UNKNOWN_CA")
"""Alerts of a listener that wants a certificate, and gets none or one that it does not trust. Java sends the second
where TLS 1.3 has the first."""
DATES, NAMES = (9, 10), (62, 64)
"""OpenSSL's X509_V_ERR_ codes of a certificate: not yet valid or expired; of another host or address."""
HANDSHAKE, SESSION_LIFETIME_SINCE = 1, 1
"""Version of SaslHandshake after which tokens are in requests; first version of SaslAuthenticate with the
lifetime of the session (KIP-368)."""


class Request(Protocol):
    def encode(self, version: int) -> bytes: ...


class ConnectionLost(ConnectionError):
    """The connection is lost. What was asked for may or may not have happened."""


NO_ANSWER = (ConnectionLost, TimeoutError, WireError)
"""Exceptions of a request to a broker that gets no answer, or none that can be read."""


class NotAuthenticated(ConnectionLost):
    """The broker refuses this client's credentials, or this client the broker's certificate or proof."""


OWN = (NotAuthenticated,)
"""Errors that another address of the same host would have, too."""


class BrokerConnection(asyncio.Protocol):
    """One pipelined connection; responses come in the order of requests. Each API uses the newest version that both
    sides know."""

    def __init__(
        self,
        client_id: str,
        response_bytes: int = RESPONSE_BYTES,
        security: Login = PLAINTEXT,
        address: tuple[str, int] = ("", 0),
    ) -> None:
        self._client_id = client_id
        self._address = address
        """Host and port as `open` got them: `security` keeps refusals by them. The peer of a name has another host."""
        self._response_bytes = response_bytes
        self._security = security
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        """Correlation ids and futures of the requests without a response, in their order."""
        self._why = ""
        self._correlation = 0
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._held: list[tuple[bytes, int, asyncio.Future[bytes]]] | None = None
        """Requests that wait while the client authenticates again; None: it does not."""
        self._again: asyncio.TimerHandle | None = None
        self._authenticating: asyncio.Task[None] | None = None
        self.closed = False

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = OPEN_S,
        response_bytes: int = RESPONSE_BYTES,
        security: Login = PLAINTEXT,
    ) -> BrokerConnection:
        """Returns a connection whose broker has answered and authenticated this client. Raises ConnectionLost."""
        if why := security.refusal(host, port):
            raise NotAuthenticated(f"{host}:{port}: {why}")
        used = security.now
        try:
            tls: dict[str, Any] = {}
            if (context := used.ssl_context()) is not None:
                tls = {"ssl": context, "server_hostname": host}
            token = await _token_at_hand(used)
            addresses = await addresses_of(host)
            make = partial(cls, client_id, response_bytes, security, (host, port))
            async with asyncio.timeout(timeout_s):
                _, conn = await connected(make, addresses, port, lambda c: c._greet(used, token), OWN, **tls)
        except (ssl.SSLError, SecurityError, NotAuthenticated) as exc:
            security.refused(host, port, why := _plain(exc), used=used)
            raise NotAuthenticated(f"{host}:{port}: {why}") from exc
        except (OSError, WireError, OverflowError) as exc:  # OverflowError: there is no such port
            if used.tls and isinstance(exc, ConnectionResetError):
                security.refused(host, port, NO_TLS, sure=False, used=used)
                raise NotAuthenticated(f"{host}:{port}: {NO_TLS}") from exc
            raise ConnectionLost(f"{host}:{port}: {plain(exc)}") from exc.with_traceback(None)  # it holds this task
        security.accepted(host, port)
        return conn

    async def _greet(self, used: Security, token: str) -> None:
        """Makes sure that a broker listens, and authenticates."""
        await self._negotiate()
        if used.sasl:
            await self._authenticate(used, token)

    async def _negotiate(self) -> None:
        req = av.ApiVersionsRequest(client_software_name="kafka-group-sidecar", client_software_version="1")
        raw = await self._send(18, 3, req.encode(3), flexible=True)
        self._versions = _ranges(raw[8:])

    # ---- SASL ---------------------------------------------------------------------------------------------
    async def _authenticate(self, security: Security, token: str) -> None:
        """Authenticates by SASL. Raises NotAuthenticated, ConnectionLost, WireError, SecurityError."""
        hello = sh.SaslHandshakeRequest(mechanism=security.mechanism)
        _, handshake = await self._at_once(sh, "SaslHandshake", hello, low=HANDSHAKE, high=HANDSHAKE)
        if handshake.error_code != Code.NONE:
            knows = ", ".join(handshake.mechanisms) or "none"
            raise NotAuthenticated(f"the broker's listener does not take {security.mechanism}; it takes {knows}")
        life_ms = 0
        exchange = security.exchange(token)
        message = next(exchange, None)
        while message is not None:
            version, res = await self._at_once(sa, "SaslAuthenticate", sa.SaslAuthenticateRequest(auth_bytes=message))
            if res.error_code != Code.NONE:
                why = res.error_message or name_of(res.error_code)
                raise NotAuthenticated(f"the broker refuses {security.shown()}: {why}")
            life_ms = res.session_lifetime_ms if version >= SESSION_LIFETIME_SINCE else 0
            try:
                message = exchange.send(res.auth_bytes)
            except StopIteration:
                message = None
        if life_ms > 0:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(AGAIN_AFTER * life_ms / 1000, self._authenticate_again)

    async def _at_once(
        self, module: Any, name: str, req: Request, low: int = 0, high: int | None = None
    ) -> tuple[int, Any]:
        """Returns version and response of a request that is not held back while the client authenticates."""
        version, flexible, response = self.start(module, name, req, high, low, at_once=True)
        return version, _decoded(module, name, version, flexible, await response)

    def _authenticate_again(self) -> None:
        """Authenticates again before the session ends (KIP-368). Other requests go out afterwards: between the two
        steps a broker takes nothing else."""
        if not self.closed:
            self._authenticating = asyncio.get_running_loop().create_task(self._renewed())

    async def _renewed(self) -> None:
        used = self._security.now
        try:
            token = await _token_at_hand(used)
            self._held = []
            async with asyncio.timeout(AUTHENTICATE_S):
                await self._authenticate(used, token)
        except (OSError, TimeoutError, WireError, SecurityError) as exc:
            self._why = _plain(exc)
            if isinstance(exc, NotAuthenticated | SecurityError) and not self.closed:
                self._security.refused(*self._address, self._why, used=used)
            self.close()
            return
        held, self._held = self._held or [], None
        for frame, correlation, future in held:
            if not future.done():  # nobody waits any more for what it asks for
                self._write(frame, correlation, future)

    def version(self, api_key: int, low: int, high: int) -> int:
        """Returns the newest version that both sides know. Raises WireError if there is none."""
        offered = self._versions.get(api_key)
        best = -1 if offered is None else min(high, offered[1])
        if offered is None or best < max(low, offered[0]):
            raise WireError(f"broker has no version of api {api_key} in {low}-{high}: {offered}")
        return best

    def offers(self, api_key: int, version: int) -> bool:
        """Returns whether the broker knows this version."""
        low, high = self.versions_of(api_key)
        return low <= version <= high

    def versions_of(self, api_key: int) -> tuple[int, int]:
        """Returns the lowest and highest version that the broker knows; (0, -1): none."""
        return self._versions.get(api_key, (0, -1))

    async def request(
        self, module: Any, name: str, req: Request, high: int | None = None, timeout_s: float = 10.0, low: int = 0
    ) -> Any:
        """Sends `req` and returns the decoded response. `module`: the generated module; `name`: the message's name,
        such as "JoinGroup". Raises WireError also for a response that leaves something out."""
        version, flexible, raw = await self.exchange(module, name, req, high, timeout_s, low)
        res = _decoded(module, name, version, flexible, raw)
        check_answers(name, version, req, res)
        self._security.answered(name, req, res)
        return res

    async def exchange(
        self, module: Any, name: str, req: Request, high: int | None = None, timeout_s: float = 10.0, low: int = 0
    ) -> tuple[int, bool, bytes]:
        """Sends like `request`. Returns the version, whether its headers are flexible, and the response frame."""
        version, flexible, response = self.start(module, name, req, high, low)
        try:
            return version, flexible, await self._within(timeout_s, response)
        finally:
            del response  # its exception holds this frame

    def start(
        self, module: Any, name: str, req: Request, high: int | None = None, low: int = 0, at_once: bool = False
    ) -> tuple[int, bool, asyncio.Future[bytes]]:
        """Sends like `exchange`, but returns a future of the response frame at once. `at_once`: also while the client
        authenticates again. Raises ConnectionLost and WireError."""
        upper = _upper(name)
        least, top = getattr(module, f"{upper}_REQUEST_VERSIONS")
        request_class = getattr(module, f"{name}Request")
        key = Api[upper]
        version = self.version(key, max(low, least), min(top, high) if high is not None else top)
        flexible = version >= getattr(module, f"{upper}_REQUEST_FLEXIBLE_FROM")
        assert isinstance(req, request_class)
        return version, flexible, self._send(key, version, req.encode(version), flexible, at_once)

    async def raw(self, api_key: int, version: int, body: bytes, flexible: bool, timeout_s: float = 10.0) -> bytes:
        """Sends an encoded request body and returns the whole response frame. Raises WireError if the broker does not
        know the version: it would close the connection, and with it end the requests of others."""
        self.version(api_key, version, version)
        return await self._within(timeout_s, self._send(api_key, version, body, flexible))

    async def _within(self, timeout_s: float, response: asyncio.Future[bytes]) -> bytes:
        """Awaits a response. Raises TimeoutError, and then closes the connection: other requests on it would wait
        behind this one, and a broker that stands still or is cut off looks just like that."""
        try:
            async with asyncio.timeout(timeout_s):
                return await response
        except TimeoutError:
            self.close("no answer to another request on the same connection")
            raise
        finally:
            del response  # its exception holds this frame

    def peer(self) -> tuple[str, int]:
        """Returns the host and port of the other end."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("peername")[:2]
        return str(host), int(port)

    def _send(
        self, api_key: int, version: int, body: bytes, flexible: bool, at_once: bool = False
    ) -> asyncio.Future[bytes]:
        """Sends a request. `at_once`: also while the client authenticates again. Raises ConnectionLost."""
        if self.closed or self._transport is None:
            raise ConnectionLost(self._why or "connection is closed")
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        frame = request_frame(api_key, version, self._correlation, self._client_id, flexible, body)
        if self._held is None or at_once:
            self._write(frame, self._correlation, future)
        else:
            self._held.append((frame, self._correlation, future))
        return future

    def _write(self, frame: bytes, correlation: int, future: asyncio.Future[bytes]) -> None:
        self._waiting.append((correlation, future))
        if self._transport is not None:
            self._transport.write(frame)

    # ---- asyncio.Protocol ---------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop has its own classes
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4 and not self._why:
            (size,) = SIZE.unpack_from(self._buffer)
            if size < 4:
                self._refuse(f"the broker announced a response of {size} bytes")
            elif size > self._response_bytes:
                most = f"more than limits.response_bytes {self._response_bytes}"
                self._refuse(f"the broker announced a response of {size} bytes, {most}: raise it if this is a broker")
            elif len(self._buffer) < 4 + size:
                return
            elif not self._waiting or self._waiting[0][0] != SIZE.unpack_from(self._buffer, 4)[0]:
                self._refuse("the broker sent a response that nobody had asked for")
            else:
                frame = bytes(self._buffer[: 4 + size])
                del self._buffer[: 4 + size]
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(frame)

    def _refuse(self, why: str) -> None:
        """Closes the connection, as frames can no longer be separated. All open requests fail with this reason."""
        self._buffer.clear()
        self.close(why)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        why = self._why or ("closed by the broker" if exc is None else _plain(exc))
        lost = NotAuthenticated if isinstance(exc, ssl.SSLError) else ConnectionLost
        if self._again is not None:
            self._again.cancel()
        if self._authenticating is not None:
            self._authenticating.cancel()
        futures = [future for _, future in self._waiting] + [future for *_, future in self._held or ()]
        for future in futures:
            if not future.done():
                future.set_exception(lost(why))
        self._waiting.clear()
        self._held = None

    def close(self, why: str = "closed here") -> None:
        """Closes the connection at once, and fails all open requests with this reason. An orderly close would wait
        until the broker has taken all bytes and, with TLS, has agreed (30 s): one that stands still does neither."""
        self.closed = True
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()


async def _token_at_hand(security: Security) -> str:
    """Returns the token to authenticate with; "" without tokens. Raises SecurityError."""
    if (tokens := security.tokens) is None:
        return ""
    try:
        async with asyncio.timeout(GIVE_UP_S):
            token, _ = await asyncio.wrap_future(tokens.fetch())
    except TimeoutError as exc:
        raise tokens.fault(plain(exc)) from None
    return token


def _plain(exc: Exception) -> str:
    """Returns the cause, with a hint where OpenSSL's words have none."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return f"the broker's certificate is not accepted: {exc.verify_message}; {_look_at(exc.verify_code)}"
    if isinstance(exc, ssl.SSLError) and exc.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return NO_TLS
    if isinstance(exc, ssl.SSLError) and any(alert in str(exc.reason) for alert in NO_CERTIFICATE):
        return "the broker's listener wants a certificate that it can trust: look at ssl.keystore.location"
    return plain(exc)


def _look_at(verify_code: int) -> str:
    if verify_code in DATES:
        return "look at the broker's ssl.keystore.location, and at the clocks of both"
    if verify_code in NAMES:
        return "the broker needs a certificate with the name or address that it is reached by"
    return "look at ssl.truststore.location"


@lru_cache(maxsize=16)
def _ranges(answer: bytes) -> Mapping[int, tuple[int, int]]:
    """Returns API key -> lowest and highest version, cached: a broker answers the same on each connection."""
    res = av.ApiVersionsResponse.decode(3, answer)
    return MappingProxyType({k.api_key: (k.min_version, k.max_version) for k in res.api_keys})


def _decoded(module: Any, name: str, version: int, flexible: bool, frame: bytes) -> Any:
    return getattr(module, f"{name}Response").decode(version, frame, response_body(frame, flexible))


@lru_cache(maxsize=64)
def _upper(name: str) -> str:
    """Returns `JOIN_GROUP` for `JoinGroup`, as generated constants and `Api` spell it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
