"""Readers of the state topic are in no group. What concerns a group alone does not end them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sidecar.audit.history.topic import Reader
from sidecar.audit.source import topic
from sidecar.audit.source.kafka import KafkaSource
from sidecar.cli import state
from sidecar.cli.connect import Client

TOPIC, RECORDS = "__group_state", 3


class Message:
    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self) -> Any:
        return None if self._code is None else KafkaError(self._code)

    def offset(self) -> int:
        return self._offset

    def partition(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> None:
        return None


class Consumer:
    """A consumer of a topic with one partition. `refusal`: an error that comes first."""

    refusal = int(KafkaError.GROUP_AUTHORIZATION_FAILED)

    def __init__(self, config: Any = None) -> None:
        self._coming = [Message(-1001, self.refusal)]
        self._coming += [Message(n) for n in range(RECORDS)]
        self._coming.append(Message(RECORDS, KafkaError._PARTITION_EOF))

    def poll(self, timeout: float) -> Message:
        return self._coming.pop(0)

    def consume(self, count: int, timeout: float) -> list[Message]:
        return [self._coming.pop(0)] if self._coming else []

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        return 0, RECORDS

    def assign(self, partitions: Any) -> None: ...

    def close(self) -> None: ...


def _audit(tmp_path: Path) -> int:
    return sum(batch.num_rows for batch in KafkaSource("b:1", TOPIC, {}, 10).read(0, 0, RECORDS))


def _history(tmp_path: Path) -> int:
    with Reader("b:1", TOPIC, {}) as reader:
        return len(reader.read(0).records)


def _dump(tmp_path: Path) -> int:
    return state._written(Client(), "b:1", TOPIC, tmp_path / "dump").total()


READERS = [_audit, _history, _dump]


@pytest.fixture(autouse=True)
def _consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "Consumer", Consumer)


@pytest.mark.parametrize("read", READERS)
def test_who_may_read_the_topic_needs_no_right_on_a_group(read: Any, tmp_path: Path) -> None:
    """Symptom: on a slow machine a lake that was filled with the least rights ended with "Group authorization failed":
    the refusal came while records were still on their way."""
    assert read(tmp_path) == RECORDS


@pytest.mark.parametrize("read", READERS)
def test_other_refusals_end_the_reading(read: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Consumer, "refusal", int(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Exception, match="uthorization failed"):
        read(tmp_path)
