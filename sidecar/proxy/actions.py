"""What a connection wants done: see connection.py. They are not frozen, as one or two are made for each request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ToClient:
    data: bytes


@dataclass(slots=True)
class ToUpstream:
    data: bytes


@dataclass(slots=True)
class Got:
    """A whole request that the sidecar must handle. `answer(token, ...)` gives the reply."""

    token: int
    api_key: int
    version: int
    correlation_id: int
    frame: bytes


@dataclass(slots=True)
class Answered:
    """The broker's whole response frame to an `ask`."""

    token: int
    frame: bytes


@dataclass(slots=True)
class Close:
    """Close both sides; `cause` is a metric label. `client_id`: of the request that is why, as far as it is known."""

    cause: str
    detail: str = ""
    client_id: str = ""


Action = ToClient | ToUpstream | Got | Answered | Close
