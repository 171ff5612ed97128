"""The actions of a connection (connection.py). They are not frozen: each request makes one or two."""

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
    """Close both sides. `cause`: a metric label; `client_id`: of the refused request, "" if it is not known."""

    cause: str
    detail: str = ""
    client_id: str = ""


Action = ToClient | ToUpstream | Got | Answered | Close
