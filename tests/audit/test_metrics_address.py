"""The address of the metrics of `sidecar audit stream`, and what any client may read there."""

from __future__ import annotations

import re
import socket
import urllib.request

import pytest
from typer.testing import CliRunner

from sidecar.audit.run.continuous import OF_THE_LAKE, PER_PARTITION, Metrics
from sidecar.audit.source.lag import Lag
from sidecar.cli.audit import _address, _serving
from sidecar.cli.exits import Code, Failed
from sidecar.cli.main import app


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("", None),
        ("9410", ("127.0.0.1", 9410)),
        ("0.0.0.0:9410", ("0.0.0.0", 9410)),
        ("[::1]:9410", ("::1", 9410)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
    ],
)
def test_all_addresses_only_if_told_so(given: str, meant: tuple[str, int] | None) -> None:
    assert _address(given) == meant


@pytest.mark.parametrize("given", [":9410", "h", "h:", "h:x", "h:65536", "65536", "²", "h:²"])
def test_what_is_no_address_is_refused(given: str) -> None:
    done = CliRunner().invoke(app, ["audit", "stream", "--from", "kafka://h:1", "--metrics", given])
    assert done.exit_code == 2 and "is no HOST:PORT" in done.output


def test_an_address_that_is_taken_is_no_bug() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Failed, match="in use") as failed:
            _serving(Metrics(), *taken.getsockname())
    assert failed.value.code is Code.USAGE


def test_it_tells_numbers_and_no_names() -> None:
    """The address has no access control, so it names no topics or groups: docs/operate/security.md."""
    metrics = Metrics()
    metrics.set_lag(Lag(partition=3, behind=1, lost=0, age_ms=5, allowed_ms=7))
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.serve('127.0.0.1', 0)}/metrics") as res:
        told = [line for line in res.read().decode().splitlines() if not line.startswith("#")]
    assert len(told) == len(PER_PARTITION) + len(OF_THE_LAKE)
    labels = {found[1] for line in told if (found := re.search(r"\{(.*)\}", line))}
    assert labels == {'partition="3"'}
