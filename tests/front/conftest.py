"""Papers of a listener for TLS, and the loops that it runs on."""

from __future__ import annotations

import pytest

from tests.front.tls import LOOPS, Loops
from tests.security.ground import Authority, Papers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def papers(authority: Authority) -> Papers:
    return authority.issue("sidecar")


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Loops:
    return LOOPS[request.param]
