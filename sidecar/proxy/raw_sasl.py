"""Tells SASL tokens from requests after a SaslHandshake of version 0: each is a size and then bytes of the mechanism
(KIP-43; since KIP-152 there is SaslAuthenticate). Their meaning is between client and broker.

A broker answers the last token as well, if only with no bytes. Only GSSAPI's last token has no answer, so for
mechanisms that are not listed here the number of answers is unknown.
"""

from __future__ import annotations

from struct import Struct

from sidecar.wire.frames import header_end
from sidecar.wire.primitives import WireError

HEADER_BYTES, LAST_KEY = 8, 1_000
"""Size of the shortest request header, and an API key that no API has."""
TOKENS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Mechanism -> number of tokens of a client that is let in. A refused one may send another: OAUTHBEARER's is one
byte."""
_SHORT = Struct(">h")
_MECHANISM, _ERROR = 12, 8
"""Positions in a frame: of the rest of a request's header after its correlation id, and of a response's error code."""


class Exchange:
    def __init__(self, mechanism: str) -> None:
        self.answered = mechanism in TOKENS
        """Whether each token has an answer."""
        self.due = TOKENS.get(mechanism, 0)
        """Number of frames that are tokens in any case."""

    def takes(self, size: int, api_key: int) -> bool:
        """Returns whether the next frame is a token. `api_key`: the bytes in which a request would have its API key."""
        if self.due:
            self.due -= 1
            return True
        return size < HEADER_BYTES or not 0 <= api_key <= LAST_KEY


def mechanism_of(frame: bytes) -> str:
    """Returns the mechanism of a whole SaslHandshake request; "" if it cannot be read, which the broker reports,
    too."""
    try:
        _, pos = header_end(frame, _MECHANISM, False)
    except WireError:
        return ""
    if len(frame) < pos + 2:
        return ""
    (n,) = _SHORT.unpack_from(frame, pos)
    return frame[pos + 2 : pos + 2 + n].decode("utf-8", "replace") if n > 0 else ""


def accepted(frame: bytes) -> bool:
    """Returns whether this response to a SaslHandshake lets tokens follow."""
    return len(frame) >= _ERROR + 2 and _SHORT.unpack_from(frame, _ERROR) == (0,)
