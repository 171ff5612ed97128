"""SaslAuthenticate (api 36, KIP-152): the exchange between client and broker passes, and is listened to for one thing,
the client's name. It goes into records of what administrators do; nothing is decided by it, as that is the broker's.

v0: KIP-152.
v1: the answer tells how long the session lasts (KIP-368).
v2: it is flexible.

The name counts when the broker has said yes to the step that ends its mechanism: PLAIN and SCRAM name the user, and an
OAUTHBEARER token its `sub` claim, which the broker may map to something else. What cannot be told from the exchange
(GSSAPI, a delegation token, a token that is no JWT) is no name. No secret of it is kept.
"""

from __future__ import annotations

import base64
import binascii
import json

from sidecar.api.call import Call, Handler, upstream
from sidecar.core.errors import Code
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.primitives import WireError

TOKEN_MAX = 65_536
"""A longer one is not looked at."""
NAME_MAX = 255
BEARER = b"auth=Bearer "


def sasl_authenticate(call: Call) -> Handler:
    body = yield from upstream(call)
    try:
        req = sa.SaslAuthenticateRequest.decode(call.version, call.frame, call.pos)
        res = sa.SaslAuthenticateResponse.decode(call.version, body)
    except WireError:
        return body  # broker and client will find out
    listen(call, bytes(req.auth_bytes), res.error_code, bytes(res.auth_bytes))
    return body


def listen(call: Call, said: bytes, code: int, answered: bytes) -> None:
    """One step of the exchange."""
    client = call.client
    if code != Code.NONE:
        client.principal = client.claimed = ""
        return
    if said.startswith(b"c="):  # SCRAM: the proof for the name that came before
        client.principal = _principal(client.claimed)
        client.claimed = ""
        return
    if len(said) > TOKEN_MAX:
        client.principal = client.claimed = ""
    elif BEARER in said:  # an answer that is not empty says why the token does not count
        client.principal = "" if answered else _principal(_subject(said))
    elif said.count(b"\0") == 2:
        client.principal = _principal(_text(said.split(b"\0")[1]))
    elif said[:2] in (b"n,", b"y,"):
        client.claimed = _scram_name(said)
    elif said != b"\1":
        client.principal = client.claimed = ""  # another mechanism


def _principal(name: str) -> str:
    return f"User:{name}" if name and name.isprintable() and len(name) <= NAME_MAX else ""


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _scram_name(said: bytes) -> str:
    """Of RFC 5802's first message: `n,,n=alice,r=...`. Of a delegation token it is the token's id, and no user."""
    fields = [f.partition(b"=") for f in said.split(b",")[2:]]
    found = {name: value for name, _, value in fields}
    if found.get(b"tokenauth") == b"true":
        return ""
    return _text(found.get(b"n", b"")).replace("=2C", ",").replace("=3D", "=")


def _subject(said: bytes) -> str:
    token = said.partition(BEARER)[2].split(b"\1")[0]
    parts = token.split(b".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return ""
    name = claims.get("sub") if isinstance(claims, dict) else None
    return name if isinstance(name, str) else ""
