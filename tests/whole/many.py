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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
EACH = 8
"""So many runs in one process, of 10-20 MB each."""


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
    """The results in the order of the items. `jobs`: processes at a time; 0: in this one."""
    if jobs == 0:
        yield from map(work, items)
        return
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()  # what is here already is not copied because a collector looks at it
    try:
        with multiprocessing.get_context("fork").Pool(jobs or os.cpu_count(), _begin, maxtasksperchild=1) as pool:
            yield from pool.imap(work, items, chunksize=each)
    finally:
        if not frozen:
            gc.unfreeze()
