"""After a SaslHandshake of version 0 a client sends tokens that are no requests: a size, and then what its mechanism
says (KIP-43; since KIP-152 there is SaslAuthenticate for it). Here is told which frames are such tokens. What they
mean is between client and broker.

A broker answers the last token as well, if only with no bytes. GSSAPI's last token alone has no answer, so of what is
not listed here nobody can say how many answers come.
"""

from __future__ import annotations

from struct import Struct

from sidecar.wire.frames import header_end
from sidecar.wire.primitives import WireError

HEADER_BYTES, LAST_KEY = 8, 1_000
"""The shortest header of a request, and a number that no API has."""
TOKENS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""Mechanism -> tokens of a client that is let in. One that is not may send another: OAUTHBEARER's is one byte."""
_SHORT = Struct(">h")
_MECHANISM, _ERROR = 12, 8
"""Where the header goes on behind the correlation id in a request; where the error code of a response is."""


class Exchange:
    def __init__(self, mechanism: str) -> None:
        self.answered = mechanism in TOKENS
        """Each token has an answer."""
        self.due = TOKENS.get(mechanism, 0)
        """So many tokens come, whatever they look like."""

    def takes(self, size: int, api_key: int) -> bool:
        """Whether the next frame is a token. `api_key`: what would be that of a request."""
        if self.due:
            self.due -= 1
            return True
        return size < HEADER_BYTES or not 0 <= api_key <= LAST_KEY


def mechanism_of(frame: bytes) -> str:
    """Of a whole SaslHandshake request; "" if it cannot be read, which the broker will say, too."""
    try:
        _, pos = header_end(frame, _MECHANISM, False)
    except WireError:
        return ""
    if len(frame) < pos + 2:
        return ""
    (n,) = _SHORT.unpack_from(frame, pos)
    return frame[pos + 2 : pos + 2 + n].decode("utf-8", "replace") if n > 0 else ""


def accepted(frame: bytes) -> bool:
    """Whether this response to a SaslHandshake lets tokens follow."""
    return len(frame) >= _ERROR + 2 and _SHORT.unpack_from(frame, _ERROR) == (0,)
