"""Many runs at once, in processes that are thrown away after some of them.

Each begins as a copy of this one, with everything imported. The garbage collector has no work that pays there: what a
run leaves behind is given back when its process ends.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
FORK = multiprocessing.get_context("fork")
EACH = 8
"""Runs in one process, of 10-20 MB each."""


def quiet() -> None:
    """At the end of a run coroutines are thrown away in the middle; what they still wanted to do concerns nobody."""
    usual = sys.unraisablehook

    def hook(found: Any) -> None:
        if "GeneratorExit" not in str(found.exc_value):
            usual(found)

    sys.unraisablehook = hook


def _begin() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the pool ends with it; a test before may have left a handler here
    quiet()
    gc.disable()


def spread(
    work: Callable[[Item], Result], items: Sequence[Item], jobs: int | None = None, each: int = EACH
) -> Iterator[Result]:
    """The results in the order of the items. `jobs`: processes at a time; 0: in this one. Not multiprocessing's pool:
    it may begin a process while it ends the others, and then waits for that one for ever."""
    if jobs == 0:
        yield from map(work, items)
        return
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()  # what is here already is not copied because a collector looks at it
    left = deque(enumerate(items[at : at + each] for at in range(0, len(items), each)))
    running: dict[Connection, tuple[int, ForkProcess]] = {}
    done: dict[int, list[Result]] = {}
    try:
        for n in range(len(left)):
            while n not in done:
                while left and len(running) < (jobs or os.cpu_count() or 1):
                    at, chunk = left.popleft()
                    out, process = _begun(work, chunk)
                    running[out] = at, process
                ready = wait(list(running))
                for out in [out for out in running if out in ready]:
                    at, process = running.pop(out)
                    done[at] = _result(out, process)
            yield from done.pop(n)
    finally:
        for _, process in running.values():
            process.kill()
            process.join()
        if not frozen:
            gc.unfreeze()


def _begun(work: Callable[[Item], Result], chunk: Sequence[Item]) -> tuple[Connection, ForkProcess]:
    out, into = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_run, args=(work, chunk, into), daemon=True)
    process.start()
    into.close()
    return out, process


def _run(work: Callable[[Item], Result], chunk: Sequence[Item], into: Connection) -> None:
    _begin()
    try:
        into.send(list(map(work, chunk)))
    except Exception as exc:  # noqa: BLE001 - raised by whoever asked
        into.send(exc)


def _result(out: Connection, process: ForkProcess) -> list[Any]:
    try:
        found = out.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a process ended with {process.exitcode} and gave no result") from None
    finally:
        out.close()
    process.join()
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, list)
    return found
