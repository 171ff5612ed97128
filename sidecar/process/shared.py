"""Parts that both halves of a process use: log, metrics, tasks, and the sources of nondeterminism."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING
from uuid import uuid4

from sidecar.core.vocabulary.internal_topics import TRANSACTIONS
from sidecar.kafka.denials import AUTHENTICATION, AUTHORIZATION, Denials
from sidecar.link.ports import Logger
from sidecar.process.broker_credentials import BrokerCredentials
from sidecar.process.log import make_logger
from sidecar.process.metrics import Metrics
from sidecar.process.settings import Settings
from sidecar.process.tasks import Lasting

if TYPE_CHECKING:
    from sidecar.process.coordinator_environment import CoordinatorEnvironment

GC_THRESHOLDS = (700, 10, 10_000)
MMAP_THRESHOLD, MMAP_BYTES = -3, 1 << 20
"""Parameters of mallopt(3): M_MMAP_THRESHOLD and its value."""


def collect_rarely() -> None:
    """Exempts all present objects from garbage collection and makes full collections rare. The groups' state has no
    cycles, and a full collection of a large state would stop the loop for longer than an assignment does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def give_back() -> None:
    """Makes glibc return freed blocks of more than a MB to the system. It would raise that threshold to 32 MB after the
    first large answer, and keep as much for the next one. Without mallopt, as with musl, this does nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, MMAP_BYTES)


def starts() -> None:
    give_back()
    collect_rarely()


def freeze() -> None:
    """Exempts the state that was read from garbage collection, too. It is not collected first: clients are served
    already, and with 100,000 members that stops the loop for 0.1 s."""
    gc.freeze()


def thaw() -> None:
    """Collects a coordinator that has ended: it is in cycles, and it was exempt. This stops the loop for longer than
    anything else here, but there is no coordinator that could be late."""
    gc.unfreeze()
    gc.collect()


async def load(name: str) -> ModuleType:
    """Imports a module beside the loop, which passes the clients' requests meanwhile."""
    return await asyncio.to_thread(importlib.import_module, name)


@dataclass(frozen=True)
class Environment:
    """A process's sources of nondeterminism: threads, random ids, the collector, the log's output. The simulation of
    whole processes replaces them."""

    new_logger: Callable[..., Logger] = make_logger
    new_id: Callable[[], str] = lambda: str(uuid4())
    starts: Callable[[], None] = starts
    started: Callable[[], None] = freeze
    ended: Callable[[], None] = thaw
    load: Callable[[str], Awaitable[ModuleType]] = load
    coordinator: CoordinatorEnvironment | None = None
    """Environment of the coordinator; None: the real one of coordinator_environment.py."""


REAL = Environment()

BOOTSTRAP = (
    "set bootstrap to the brokers' listener without sidecars: without it the other brokers are asked through their "
    "sidecars, which show this group to nobody"
)
"""The remedy where the owners' group is refused and `bootstrap` is not set."""


class Shared:
    """The parts that both halves of a process use: log, metrics, tasks."""

    def __init__(self, s: Settings, environment: Environment) -> None:
        """Makes the parts. Raises StartError."""
        self.environment = environment
        self.log = environment.new_logger(s.log.level, s.log.format, node_id=s.node_id)
        self.metrics = Metrics()
        self.tasks = Lasting(self.log, self.metrics)
        own = {s.state.topic: "", s.ownership.group: "" if s.bootstrap else BOOTSTRAP}
        unneeded = {TRANSACTIONS}  # the sidecar looks at it only to explain why a fence cannot be had
        self.denials = Denials(self.log, own, unneeded)
        for kind in (AUTHENTICATION, AUTHORIZATION):
            self.metrics("denials", kind).set_function(partial(self.denials.count, kind))
        self.credentials = BrokerCredentials.of(s, self.denials, self.log)
