"""An S3 API on this machine, with the conditional puts that Delta's commits rest on, in a process of its own.

Its packages are in an environment of uv, for botocore asks for an older python-dateutil than the audit has.
"""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUCKET = "lakes"
PACKAGES = ("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5")


@contextmanager
def object_store() -> Iterator[dict[str, str]]:
    """The environment of those who use it."""
    asked = [word for package in PACKAGES for word in ("--with", package)]
    command = [str(Path(sys.executable).with_name("uv")), "run", "-q", "--no-project", *asked, "python", __file__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=30):
                pass
            yield {
                "AWS_ENDPOINT_URL": address,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
            }
        finally:
            server.communicate(timeout=30)  # its input ends, and so does it


def main() -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    print("http://{}:{}".format(*server.get_host_and_port()), flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
