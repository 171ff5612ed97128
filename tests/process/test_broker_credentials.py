"""TLS of the clients' connections to the broker follows the truststore."""

from __future__ import annotations

import os
from pathlib import Path

from sidecar.kafka.properties import of
from sidecar.process.broker_credentials import ClientsTls
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
