from __future__ import annotations

import pytest

from sidecar.wire.frames import header_end, produce_acks, request_frame, response_body, response_frame
from sidecar.wire.generated.produce import ProduceRequest
from sidecar.wire.primitives import WireError, put_uvarint, uvarint


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300, 16_383, 16_384, 0xFFFFFFFF])
def test_uvarint_round_trip(n: int) -> None:
    out = bytearray()
    put_uvarint(out, n)
    assert uvarint(bytes(out), 0) == (n, len(out))


@pytest.mark.parametrize("client_id", [None, "", "c", "ü" * 100])
@pytest.mark.parametrize("flexible", [True, False])
def test_request_header_round_trip(client_id: str | None, flexible: bool) -> None:
    frame = request_frame(68, 1, 7, client_id, flexible, b"body")
    found, pos = header_end(frame, 12, flexible)
    assert (found, frame[pos:]) == (client_id, b"body")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_a_client_id_past_the_end_is_refused() -> None:
    frame = bytearray(request_frame(68, 1, 7, "client", False, b""))
    frame[12:14] = b"\x7f\xff"
    with pytest.raises(WireError):
        header_end(bytes(frame), 12, False)


@pytest.mark.parametrize("flexible", [True, False])
def test_response_body_follows_the_header(flexible: bool) -> None:
    frame = response_frame(9, flexible, b"body")
    assert frame[response_body(frame, flexible) :] == b"body"


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("txn", [None, "", "a-transaction"])
def test_acks_of_a_produce_from_its_first_bytes(version: int, acks: int, txn: str | None) -> None:
    body = ProduceRequest(transactional_id=txn, acks=acks, timeout_ms=1).encode(version)
    frame = request_frame(0, version, 1, "producer", version >= 9, body)
    assert produce_acks(frame[12:], version, 9) == acks
    assert produce_acks(frame[12:16], version, 9) is None, "too few bytes to tell"
