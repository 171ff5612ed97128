"""What can be wrong with how brokers are to be reached."""

from __future__ import annotations


class SecurityError(Exception):
    """Properties, a store or a server of tokens are of no use. The text says which and what to do, and no secret."""
