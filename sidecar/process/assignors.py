"""Loads assignors: the built-in ones, and those that installed packages offer by entry point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from sidecar.assign import BUILT_IN, SHARE_BUILT_IN, TASK_BUILT_IN
from sidecar.assign.share import ShareAssignor
from sidecar.assign.spec import Assignor
from sidecar.assign.task_spec import TaskAssignor

A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Offered(Generic[A_co]):
    """The assignors of one kind of group. `group`: the entry point group of plug-ins."""

    setting: str
    group: str
    built_in: Mapping[str, A_co]


CONSUMER: Offered[Assignor] = Offered("consumer.assignors", "kafka_group_sidecar.assignors", BUILT_IN)
SHARE: Offered[ShareAssignor] = Offered("share.assignors", "kafka_group_sidecar.share_assignors", SHARE_BUILT_IN)
STREAMS: Offered[TaskAssignor] = Offered("streams.assignors", "kafka_group_sidecar.task_assignors", TASK_BUILT_IN)


OFFERED: Mapping[str, Offered[Any]] = {"consumer": CONSUMER, "share": SHARE, "streams": STREAMS}
"""Offered assignors by kind of group."""


class UnknownAssignor(Exception):
    """An assignor cannot be loaded; the text lists the available ones."""


def load(names: Iterable[str], of: Offered[A_co]) -> dict[str, A_co]:
    """Returns the assignors that `of.setting` names. Raises UnknownAssignor, also for one that cannot be imported."""
    installed: dict[str, EntryPoint] | None = None
    loaded: dict[str, A_co] = {}
    for name in names:
        if name in of.built_in:
            loaded[name] = of.built_in[name]
            continue
        if installed is None:  # the list of all that is installed takes milliseconds
            installed = {e.name: e for e in entry_points(group=of.group)}
        if name not in installed:
            known = ", ".join(sorted({*of.built_in, *installed}))
            raise UnknownAssignor(f"{of.setting}: no assignor {name!r}; there are {known} (entry points {of.group})")
        try:
            loaded[name] = installed[name].load()
        except Exception as exc:
            raise UnknownAssignor(
                f"{of.setting}: {name!r} ({installed[name].value}) cannot be loaded: {exc!r}"
            ) from exc
        if not callable(loaded[name]):
            raise UnknownAssignor(f"{of.setting}: {name!r} ({installed[name].value}) is not callable")
    return loaded
