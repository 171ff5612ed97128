"""The wire client's words for failures: a certificate that it does not accept, an address without a listener."""

from __future__ import annotations

import socket
import ssl
from urllib.error import URLError

import pytest

from sidecar.kafka.errors import plain
from sidecar.kafka.net import _plain


@pytest.mark.parametrize(
    ("code", "says"),
    [(10, "ssl.keystore"), (9, "clock"), (62, "name or address"), (20, "ssl.truststore"), (18, "ssl.truststore")],
)
def test_the_remedy_is_that_of_the_fault(code: int, says: str) -> None:
    fault = ssl.SSLCertVerificationError(1, "certificate verify failed")
    fault.verify_code, fault.verify_message = code, "as OpenSSL says it"
    assert says in _plain(fault)
    assert ("truststore" in _plain(fault)) == (code in (20, 18))


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9092)"), "Connection refused"),
        (URLError(ConnectionRefusedError(111, "Connection refused")), "Connection refused"),
        (
            OSError("Multiple: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect call failed ('h', 1)"),
            "Connection refused",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "No such file or directory"),
        (TimeoutError(), "timed out"),
        (ConnectionResetError("closed by the broker"), "closed by the broker"),
    ],
)
def test_the_systems_word_is_enough(fault: OSError, says: str) -> None:
    assert plain(fault) == says
