"""Shows the state topic to clients as internal: one bit in the answers to Metadata and DescribeTopicPartitions.

Clients' patterns do not match internal topics. The answers pass as they come, in pieces of any size, so nothing is
decoded: in each topic's entry the flag stands at a fixed distance behind the name, and a name is known by its length
and its bytes. An answer without the topic costs one search.

The end of an answer to a request that changes topics is reported, too (`Passing`).
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.wire.apis import Api
from sidecar.wire.primitives import put_uvarint

CHANGE_TOPICS = (Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS)
TOPIC_APIS = (Api.METADATA, Api.DESCRIBE_TOPIC_PARTITIONS, *CHANGE_TOPICS)
TOPIC_ID_BYTES = 16
METADATA_FLAG_SINCE, METADATA_FLEXIBLE_SINCE, METADATA_ID_SINCE = 1, 9, 10


class Marker:
    """Sets the flag "internal" of one topic in one answer, as it passes."""

    __slots__ = ("_behind", "_held", "_name")

    def __init__(self, name: bytes, behind: int) -> None:
        """Takes in the position of the flag. `name`: with its length; `behind`: bytes between it and the flag."""
        self._name = name
        self._behind = behind
        self._held = b""

    def take(self, data: bytes, last: bool) -> bytes:
        """Returns the bytes that may leave. Bytes that may begin the topic's entry are held until more come."""
        if self._held:
            data = self._held + data
            self._held = b""
        name, behind = self._name, self._behind
        at = data.find(name)
        if at >= 0:
            data = self._mark(data, at)
        keep = 0 if last else min(len(data), len(name) + behind)
        if keep:
            self._held = data[-keep:]
            return data[:-keep]
        return data

    def _mark(self, data: bytes, at: int) -> bytes:
        changed = bytearray(data)
        while at >= 0:
            flag = at + len(self._name) + self._behind
            if flag < len(changed) and changed[flag] == 0:
                changed[flag] = 1
            at = data.find(self._name, at + 1)
        return bytes(changed)


class Passing:
    """Reports the end of one answer, before its last bytes leave."""

    __slots__ = ("_passed",)

    def __init__(self, passed: Callable[[], None]) -> None:
        self._passed = passed

    def take(self, data: bytes, last: bool) -> bytes:
        if last:
            self._passed()
        return data


class Internal:
    """Makes a marker for each answer that needs one. `topic`: shown as internal, "": none. `changed()`: a request was
    answered that may have changed topics."""

    def __init__(self, topic: str, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        raw = topic.encode()
        compact = bytearray()
        put_uvarint(compact, len(raw) + 1)
        self._compact, self._plain = bytes(compact) + raw, len(raw).to_bytes(2, "big") + raw
        self._shown = bool(raw)

    def marker(self, api_key: int, version: int) -> Marker | Passing | None:
        """Returns the marker for the answer to this request; None: the answer passes as it is."""
        if api_key in CHANGE_TOPICS:
            return Passing(self._changed)
        if not self._shown:
            return None
        if api_key == Api.DESCRIBE_TOPIC_PARTITIONS:
            return Marker(self._compact, TOPIC_ID_BYTES)
        if api_key != Api.METADATA or version < METADATA_FLAG_SINCE:
            return None
        name = self._compact if version >= METADATA_FLEXIBLE_SINCE else self._plain
        return Marker(name, TOPIC_ID_BYTES if version >= METADATA_ID_SINCE else 0)


NOT_SHOWN = Internal("")
