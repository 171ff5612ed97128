"""The real sidecar, but its handler of OffsetDelete raises. No other client of these tests asks for that."""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from typing import cast

from sidecar.api.call import Call, Handler
from sidecar.api.handlers import HANDLERS
from sidecar.cli import main as cli
from sidecar.cli import run, worker
from sidecar.wire.apis import Api


def breaks(call: Call) -> Handler:
    raise ZeroDivisionError("injected")
    yield


if __name__ == "__main__":
    cast(MutableMapping[int, Callable[[Call], Handler]], HANDLERS)[Api.OFFSET_DELETE] = breaks
    run.WORKER = ("-m", "tests.see.broken_handler")
    if sys.argv[1:2] == ["run"]:
        cli.app()
    else:
        worker.entry(*sys.argv[1:])
