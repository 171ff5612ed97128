"""Questions to brokers are asked in slices, so that Ctrl-C is heard."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka import waiting
from sidecar.kafka.waiting import in_slices

PACKAGES = [Path(waiting.__file__).parents[1] / room for room in ("audit", "cli", "kafka")]


class Broker:
    """A broker that answers after so many seconds of one call; a call that ends before costs its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers_after_s: float, code: int = KafkaError._TIMED_OUT):
        self.clock, self.answers_after_s, self.code = 0.0, answers_after_s, code
        self.slices: list[float] = []
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.clock))

    def ask(self, timeout_s: float) -> str:
        self.slices.append(timeout_s)
        self.clock += min(timeout_s, self.answers_after_s)
        if timeout_s < self.answers_after_s:
            raise KafkaException(KafkaError(self.code))
        return "the answer"


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._TRANSPORT])
def test_a_silent_broker_holds_no_ctrl_c_up(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Symptom: after Ctrl-C a command went on for half a minute."""
    broker = Broker(monkeypatch, answers_after_s=99, code=code)
    with pytest.raises(KafkaException):
        in_slices(broker.ask, 30)
    assert broker.slices[0] == 1 and max(broker.slices) <= 6
    assert broker.clock == pytest.approx(30)


@pytest.mark.parametrize("answers_after_s", [0, 0.5, 3])
def test_a_slow_broker_is_waited_for(monkeypatch: pytest.MonkeyPatch, answers_after_s: float) -> None:
    assert in_slices(Broker(monkeypatch, answers_after_s).ask, 30) == "the answer"


def test_a_refusal_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, answers_after_s=99, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        in_slices(broker.ask, 30)
    assert broker.slices == [1]


def test_no_question_waits_in_one_call() -> None:
    """Each call that waits in librdkafka gets its time from `in_slices`."""
    waits = re.compile(r"\.(list_topics|get_watermark_offsets|offsets_for_times)\(.*")
    calls = [m[0] for f in PACKAGES for path in f.rglob("*.py") for m in waits.finditer(path.read_text())]
    assert len(calls) == 3
    assert all("timeout=s)" in call for call in calls), calls
