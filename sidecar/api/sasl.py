"""SaslAuthenticate (api 36, KIP-152): the exchange between client and broker passes, and only the client's name is read
from it. It goes into records of administrators' actions; it gives no rights, as these are the broker's to decide.

v0: KIP-152.
v1: the response has the lifetime of the session (KIP-368).
v2: it is flexible.

The mechanism that the broker accepted in SaslHandshake defines how to read the bytes; it is never guessed, as one
mechanism's message may look like another's. They are read as the broker's own SASL server reads them. The name counts
when the broker has accepted the last step of its mechanism: PLAIN and SCRAM name the user, and an OAUTHBEARER token its
`sub` claim, which the broker may map to another name. Other exchanges give no name (GSSAPI, a delegation token, a token
that is no JWT). No secret is kept.

A session keeps its name when it authenticates again (KIP-368): a broker refuses another principal and ends it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re

from sidecar.api.call import Call, Client, Handler, upstream
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.primitives import WireError

TOKEN_MAX = 65_536
"""Longest message that is read, in bytes."""
NAME_MAX = 255
SCRAM_FIRST = re.compile(rb"n,(?:a=[^,]*)?,(?:m=[^,]*,)?n=([^,]*),r=[^,]*((?:,[A-Za-z]+=[^,]*)*)")
"""A client's first message of SCRAM: its name comes once, and an extension after it may be called `n`, too."""
SCRAM_FINAL = b"c="


def sasl_authenticate(call: Call) -> Handler:
    body = yield from upstream(call)
    try:
        req = sa.SaslAuthenticateRequest.decode(call.version, call.frame, call.pos)
        res = sa.SaslAuthenticateResponse.decode(call.version, body)
    except WireError:
        return body  # broker and client will find out
    listen(call, bytes(req.auth_bytes), res.error_code, bytes(res.auth_bytes))
    return body


def listen(call: Call, message: bytes, code: int, answer: bytes) -> None:
    """Takes in one step of the exchange."""
    client = call.client
    if code == Code.ILLEGAL_SASL_STATE:
        return  # it is no step: the session is there, and goes on as it was
    if code != Code.NONE or len(message) > TOKEN_MAX:
        client.principal = client.claimed = ""
    elif client.mechanism == "PLAIN":
        client.principal = _principal(_plain_name(message))
    elif client.mechanism == "OAUTHBEARER":  # an answer that is not empty says why the token does not count
        client.principal = "" if answer else _principal(_subject(message))
    elif client.mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        _scram(client, message)
    else:
        client.principal = ""


def _scram(client: Client, message: bytes) -> None:
    if message.startswith(SCRAM_FINAL):  # the proof for the name that came before
        client.principal, client.claimed = _principal(client.claimed), ""
    else:
        client.claimed = _scram_name(message)[: NAME_MAX + 1]


def _principal(name: str) -> str:
    return f"User:{name}" if name and name.isprintable() and len(name) <= NAME_MAX else ""


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _plain_name(message: bytes) -> str:
    """Returns the name in RFC 4616's message: authorization identity, name, password."""
    parts = message.split(b"\0")
    return _text(parts[1]) if len(parts) == 3 else ""


def _scram_name(message: bytes) -> str:
    """Returns the name in RFC 5802's first message: `n,,n=alice,r=...`. A delegation token has its id there, and no
    user."""
    match = SCRAM_FIRST.fullmatch(message)
    if match is None or _pairs(match[2], b",").get(b"tokenauth", b"").lower() == b"true":
        return ""
    return _text(match[1]).replace("=2C", ",").replace("=3D", "=")


def _pairs(message: bytes, between: bytes) -> dict[bytes, bytes]:
    """Returns the pairs of a message. The last one of a key counts, as at the broker."""
    return {key: value for key, _, value in (part.partition(b"=") for part in message.split(between))}


def _subject(message: bytes) -> str:
    """Returns the `sub` claim of the token in RFC 7628's message: `n,,^Aauth=Bearer TOKEN^A^A`, where ^A is a byte."""
    scheme, _, token = _pairs(message, b"\1").get(b"auth", b"").partition(b" ")
    parts = token.strip(b" ").split(b".")
    if scheme.lower() != b"bearer" or len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return ""
    name = claims.get("sub") if isinstance(claims, dict) else None
    return name if isinstance(name, str) else ""
