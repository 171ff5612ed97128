"""The codec of the player reads what it writes."""

from __future__ import annotations

from pathlib import Path

from tests.player.schema import Messages


def test_what_is_written_is_read(libs: Path) -> None:
    messages = Messages(libs)
    for api in messages.apis.values():
        for kind in ("Request", "Response"):
            message = messages[f"{api}{kind}"]
            for version in range(message.valid.low, message.valid.high + 1):
                written = message.encode({}, version)
                read = message.decode(written, version)
                assert "_left" not in read, (api, kind, version)
                assert message.encode(read, version) == written, (api, kind, version)
