"""Limits the size of an answer. A request of some KB may name the same large group hundreds of times, and gets its
description as often, as at a broker: so a description is made once, and an answer has a limit in bytes.

The groups beyond the limit are answered COORDINATOR_LOAD_IN_PROGRESS: clients then ask for these again, without those
that they have got. The first group of a response is always in it, however large, so every round brings some.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from sidecar.api import slices
from sidecar.api.call import PAUSE, Call, Want
from sidecar.core.vocabulary.errors import Code

TOO_LARGE_CODE = Code.COORDINATOR_LOAD_IN_PROGRESS
G = TypeVar("G")


class ResponseLimit(Generic[G]):
    """The descriptions of one answer, and the bytes that are left for it. `alone`: the response with one description
    alone, whose encoded bytes are counted, so no field is left out."""

    def __init__(self, call: Call, alone: Callable[[G], slices.Message]) -> None:
        self._scope, self._alone, self._version = call.scope, alone, call.version
        self._described: dict[str, tuple[G, int]] = {}
        self._left = call.scope.sizes.answer_bytes
        self._empty = True
        self.full = False
        """Whether a group did not fit; no further one is described."""

    def described(self, group_id: str, group: G) -> Generator[Want, Any, None]:
        size = len((yield from slices.encoded(self._alone(group), self._version)))
        self._described[group_id] = group, size
        if size > slices.SMALL_BYTES:  # the answer is made and sent in a turn of its own
            yield PAUSE

    def knows(self, group_id: str) -> bool:
        return group_id in self._described

    def take(self, group_id: str) -> G | None:
        """Returns the description once more; None: it does not fit."""
        described = None if self.full else self._described.get(group_id)
        if described is None:
            return None
        group, size = described
        self._left -= size
        if self._left < 0 and not self._empty:
            self.full = True
            self._scope.cut("answer_bytes")
            return None
        self._empty = False
        return group
