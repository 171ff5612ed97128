"""Errors on the way to brokers, and their texts for operators."""

from __future__ import annotations

import os
import re

ERRNO = re.compile(r"\[Errno (\d+)\]")


class SecurityError(Exception):
    """Properties, a store or a server of tokens cannot be used. The text has the cause and the remedy, and no
    secret."""


def plain(exc: BaseException) -> str:
    """Returns the cause in the system's words, without the address: Python repeats that with brackets and numbers."""
    reason = getattr(exc, "reason", None)
    if isinstance(reason, BaseException):  # urllib's
        return plain(reason)
    if verified := getattr(exc, "verify_message", ""):
        return f"the certificate is not accepted: {verified}"
    if isinstance(exc, UnicodeDecodeError):
        return "it is no text"
    text = str(exc)
    if isinstance(exc, OSError) and (numbers := ERRNO.findall(text)):  # several, of a name with several addresses
        return ", ".join(dict.fromkeys(os.strerror(int(number)) for number in numbers))
    return getattr(exc, "strerror", None) or text or "timed out"
