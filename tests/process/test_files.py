from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from sidecar.process.files import open_files
from tests.inprocess.embedded_sidecar import Lines
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
lines = Lines()
have = open_files(connections, lines)
print(have, resource.getrlimit(resource.RLIMIT_NOFILE)[0], *lines.events())
"""


def limited(soft: int, hard: int, connections: int) -> str:
    """In a process of its own: a hard limit never rises again."""
    command = [sys.executable, "-c", CODE, str(soft), str(hard), str(connections)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.tier("test")  # three processes: 3 s
def test_the_limit_of_open_files_follows_that_of_connections() -> None:
    """Symptom: with the usual soft limit of 1,024 the 500th client or so found its connection closed."""
    assert limited(256, 4096, 1000) == "2512 2512"
    assert limited(3000, 4096, 1000) == "3000 3000"
    assert limited(256, 2000, 1000) == "2000 2000 too few open files for limits.connections"
