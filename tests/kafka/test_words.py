"""What the wire client says of a certificate that it does not accept."""

from __future__ import annotations

import ssl

import pytest

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
