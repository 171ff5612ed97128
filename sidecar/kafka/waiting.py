"""Questions to brokers that Ctrl-C ends: while librdkafka waits in one call, Python hears no signal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
SLICE_S = 1.0


def in_slices(ask: Callable[[float], T], timeout_s: float) -> T:
    """Returns the result of `ask`, which gets the seconds that it may wait, and is called until an answer has come or
    `timeout_s` is over. Raises KafkaException.

    An answer that comes after its slice is lost. So slices get longer: a broker may take more than a second."""
    from confluent_kafka import KafkaError, KafkaException

    began, waited_s = time.monotonic(), 0.0
    while True:
        try:
            return ask(min(timeout_s - waited_s, max(SLICE_S, waited_s / 5)))
        except KafkaException as exc:
            waited_s = time.monotonic() - began
            if exc.args[0].code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT) or waited_s >= timeout_s:
                raise


def log_bounds(consumer: Any, place: Any, timeout_s: float) -> tuple[int, int]:
    """Returns the first offset of a partition and the next one to be written. Raises KafkaException."""
    low, high = in_slices(lambda s: consumer.get_watermark_offsets(place, timeout=s), timeout_s)
    return int(low), int(high)
