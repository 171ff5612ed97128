"""TLS of the clients' connections to the broker follows the truststore; refusals to librdkafka end when it reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.credentials import UNSURE_MAX, Credentials
from sidecar.kafka.denials import Denials
from sidecar.kafka.properties import of
from sidecar.kafka.security import Security
from sidecar.process.broker_credentials import NOT_AUTHENTICATED, BrokerCredentials, ClientsTls, ReadListener
from tests.inprocess.embedded_sidecar import Lines
from tests.security.ground import Authority


def _put(path: Path, text: bytes, at_s: int) -> None:
    path.write_bytes(text)
    os.utime(path, (at_s, at_s))


def test_a_changed_truststore_counts_and_a_broken_one_does_not(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    store, lines = tmp_path / "store.pem", Lines()
    _put(store, first.pem.read_bytes(), 1)
    given = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(store)}
    tls = ClientsTls(of(given), lines)

    def trusted() -> list[bytes]:
        context = tls()
        assert context is not None
        return context.get_ca_certs(binary_form=True)

    before = trusted()
    assert len(before) == 1 and trusted() == before
    _put(store, b"no certificate", 2)
    assert trusted() == before and trusted() == before
    assert lines.events("error") == ["truststore for the broker not read: the former one counts"], "once"
    store.unlink()
    assert trusted() == before and len(lines.events("error")) == 2
    _put(store, second.pem.read_bytes(), 3)
    assert len(trusted()) == 1 and trusted() != before


def test_without_tls_there_is_none() -> None:
    assert ClientsTls(of({}), Lines())() is None


class Tail:
    """Credentials of which librdkafka's refusals are noted, and the listener that its tail has."""

    def __init__(self) -> None:
        self.denials = Denials(Lines())
        self.own = Credentials("command_config", None, Security("SASL_SSL", "PLAIN", "u"), self.denials, Lines())
        self.credentials = BrokerCredentials(self.own, self.own, self.denials)
        listener: Any = self
        self.listener = ReadListener(listener, lambda: self.credentials.tail_read("t"))
        self.ends: list[int] = []

    def tail_read(self, partition: int) -> None:
        self.ends.append(partition)

    def denied(self, code: int) -> None:
        self.credentials.tail_denied("t", code, "no")


@pytest.mark.parametrize("code", [*NOT_AUTHENTICATED, Code.TOPIC_AUTHORIZATION_FAILED])
def test_a_refusal_to_the_tail_ends_when_it_reads(code: int) -> None:
    """Symptom: the tail's refusals were never over, and so neither was any later one. Three resets counted as
    three in a row, however long after one another they came."""
    b = Tail()
    for _ in range(UNSURE_MAX):
        b.denied(code)
    assert b.denials.lasting()
    b.own.accepted("broker", 1)
    assert b.denials.lasting(), "another connection says nothing of the tail's"
    b.listener.tail_read(3)
    assert b.denials.lasting() == [] and b.ends == [3]
    if code in NOT_AUTHENTICATED:
        for _ in range(2 * UNSURE_MAX):
            b.denied(code)
            b.listener.tail_read(3)
        assert b.denials.lasting() == []
