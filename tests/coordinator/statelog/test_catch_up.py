"""The thread that reads what the tail is late with, over a consumer that gets nothing."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any

import pytest

from sidecar.coordinator.statelog import catch_up as module
from sidecar.coordinator.statelog.catch_up import CatchUpReader, Want


class Wants(SimpleQueue[Want | None]):
    def __init__(self) -> None:
        self.stopped = threading.Event()

    def put(self, want: Want | None, block: bool = True, timeout: float | None = None) -> None:
        super().put(want)
        if want is None:
            self.stopped.set()


def test_the_thread_ends_though_it_is_stopped_in_the_middle_of_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the stop took two seconds, and the thread stayed for ever, with the state of a coordinator that had
    ended. Cause: the read took the word for its end as "no further want"."""
    wants, polled = Wants(), threading.Event()

    class EmptyConsumer:
        def __init__(self, config: dict[str, Any]) -> None:
            """Connects to nothing."""

        def incremental_assign(self, partitions: list[Any]) -> None:
            """The partitions have no records."""

        def poll(self, seconds: float) -> None:
            polled.set()
            wants.stopped.wait(60)

        def close(self) -> None:
            """Closes nothing."""

    monkeypatch.setattr(module, "Consumer", EmptyConsumer)
    broke: list[BaseException] = []
    reader = CatchUpReader({}, "topic", lambda messages: None, lambda text: None, broke.append)
    reader._wants = wants
    reader.read(Want(0, 0, 5))
    assert polled.wait(60)
    reader.stop()
    assert reader._thread is not None and not reader._thread.is_alive() and not broke
