"""A worker of `sidecar run`: the sidecar itself. Its parent (process/parent.py) runs this file. Modules for messages to
people are imported only for a fault, as clients wait for the port."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NoReturn

STARTED = time.monotonic()
if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))


def main(arguments: str, parent: str) -> None:
    """Runs the sidecar. `arguments`: the arguments of `sidecar run`, as JSON; `parent`: what parent.py adds."""
    from sidecar.process.orphans import dies_with

    dies_with(int(parent.partition(":")[0]))  # before all that takes time

    import asyncio
    import json

    import uvloop

    from sidecar.process.app import App
    from sidecar.process.settings import load
    from sidecar.process.worker import ParentEnd

    given = json.loads(arguments)
    config = given.pop("config")
    settings = load(None if config is None else Path(config), given)

    async def run() -> None:
        await App(settings, STARTED, parent=ParentEnd.of(parent)).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def ending(exc: Exception | KeyboardInterrupt) -> NoReturn:
    """Prints the fault, as all commands do, and ends with their code."""
    from sidecar.cli.config import invalid
    from sidecar.cli.exits import Code, Failed
    from sidecar.cli.program import broken, end_with
    from sidecar.cli.run import THEN
    from sidecar.coordinator.statelog.startup_errors import StartError
    from sidecar.process.settings import SettingsError

    if isinstance(exc, KeyboardInterrupt):
        sys.exit(int(Code.INTERRUPTED))
    if isinstance(exc, SettingsError):
        end_with(invalid(str(exc)))
    if isinstance(exc, StartError):
        end_with(Failed(Code.FINDINGS, f"sidecar: {exc}", THEN))
    broken(exc)


def entry(*given: str) -> None:
    try:
        main(*given)
    except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 - the parent decides by the code what it does
        ending(exc)


if __name__ == "__main__":
    from sidecar.process.log_output import lose_what_cannot_be_written

    lose_what_cannot_be_written()
    entry(*sys.argv[1:])
