"""Which assignors there are: the built-in ones, and those that installed packages offer by entry point."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from sidecar.assign import BUILT_IN
from sidecar.assign.spec import Assignor

GROUP = "kafka_group_sidecar.assignors"


class UnknownAssignor(Exception):
    """The text says what there is."""


def load(names: Iterable[str]) -> dict[str, Assignor]:
    """Those configured by `consumer.assignors`. Raises UnknownAssignor, also for one that cannot be imported."""
    found: dict[str, EntryPoint] | None = None
    loaded: dict[str, Assignor] = {}
    for name in names:
        if name in BUILT_IN:
            loaded[name] = BUILT_IN[name]
            continue
        if found is None:  # the list of all that is installed takes milliseconds
            found = {e.name: e for e in entry_points(group=GROUP)}
        if name not in found:
            there = ", ".join(sorted({*BUILT_IN, *found}))
            raise UnknownAssignor(f"consumer.assignors: no assignor {name!r}; there are {there} (entry points {GROUP})")
        try:
            loaded[name] = found[name].load()
        except Exception as exc:
            raise UnknownAssignor(
                f"consumer.assignors: {name!r} ({found[name].value}) cannot be loaded: {exc!r}"
            ) from exc
        if not callable(loaded[name]):
            raise UnknownAssignor(f"consumer.assignors: {name!r} ({found[name].value}) is not callable")
    return loaded
