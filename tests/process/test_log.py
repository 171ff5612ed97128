"""Lines of the log are not as long as a client wants."""

from __future__ import annotations

import json

import pytest

from sidecar.process.log import ELEMENTS, TEXT_CHARS, make_logger


def test_no_value_is_as_long_as_a_client_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: a group id of 32,767 bytes stood in a line of each attempt."""
    log = make_logger("info", "json", sidecar="s")
    log.info("said", group_id="g" * 32_767, members=["m"] * 5_000, count=7, short="as it is")
    line = json.loads(capsys.readouterr().err)
    assert line["group_id"].startswith("g" * TEXT_CHARS + "... (32767")
    assert line["members"] == ["m"] * ELEMENTS + ["4900 more"]
    assert (line["count"], line["short"], line["event"]) == (7, "as it is", "said")
