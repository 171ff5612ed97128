"""Faults of sidecars. The brokers stay as they are."""

from __future__ import annotations

import signal
import time

from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.kinds import SHARE_SINCE, STREAMS_SINCE
from sidecar.drill.local import Broker
from sidecar.drill.processes import Process, wait_until

SESSION_S = 6.0
"""`ownership.session_timeout_ms` of the sidecars."""
STOPS_WITHIN_S = 10.0
CALM_S = 2.0


def sidecar_of(node: Broker) -> Process:
    assert node.sidecar is not None, f"no sidecar {node.node_id}"
    return node.sidecar


class _OneSidecar(Drill):
    """A drill that takes one sidecar away and gives it back."""

    victim: Broker | None = None
    holds_s = 3.0

    def choose(self, ground: Ground, i: int) -> Broker:
        return ground.owner()

    def heal(self, ground: Ground, i: int) -> None:
        assert self.victim is not None
        ground.kafka.start_sidecar(self.victim)
        ground.kafka.wait_ready()


class KillOwner(_OneSidecar):
    """SIGKILL to the sidecar that owns the groups, to its parent and to its worker."""

    name = "kill-owner"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim = self.choose(ground, i)
        process = sidecar_of(self.victim)
        mark = Mark.now(f"SIGKILL to sidecar {self.victim.node_id}")
        process.kill()
        self.victim.sidecar = None
        return [mark]


class KillUnit(KillOwner):
    """SIGKILL to the owner, whose listening socket is systemd's: clients wait in it until the next one has started."""

    name = "kill-unit"
    stage = "socket units"
    back_before_heal = False


class KillShareOwner(KillOwner):
    """SIGKILL to the sidecar that owns a share group: no record is left, none is acknowledged twice."""

    name = "kill-share-owner"
    stage = "all kinds"
    kinds = (SHARE,)
    since = SHARE_SINCE


class KillWorker(_OneSidecar):
    """SIGKILL to the worker of the sidecar that owns the groups, and not to its parent, which starts another one."""

    name = "kill-worker"
    holds_s = 0.0

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim = self.choose(ground, i)
        mark = Mark.now(f"SIGKILL to the worker of sidecar {self.victim.node_id}")
        sidecar_of(self.victim).kill_worker()
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        """Wait until the sidecar's parent has healed the fault."""
        ground.kafka.wait_ready()


class KillStreamsOwner(KillWorker):
    """SIGKILL to the worker, and not to the parent, of the sidecar that owns a streams group: the application counts
    each record once. The parent keeps the broker's port open, because transactions cannot end while that broker is out
    of reach."""

    name = "kill-streams-owner"
    stage = "all kinds"
    kinds = (STREAMS,)
    since = STREAMS_SINCE


class UpgradeWorker(_OneSidecar):
    """SIGUSR2 to the owner: its parent puts a new worker in the place of the one that serves."""

    name = "upgrade-worker"
    holds_s = 0.0
    done_within_s = 30.0

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim = self.choose(ground, i)
        process = sidecar_of(self.victim)
        old = process.worker_pid
        mark = Mark.now(f"SIGUSR2 to sidecar {self.victim.node_id}")
        process.signal(signal.SIGUSR2)
        wait_until("the old worker to end", lambda: process.worker_pid != old, self.done_within_s, [process])
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        """Wait until all sidecars are ready: there is nothing else to heal."""
        ground.kafka.wait_ready()


class KillAny(KillOwner):
    """SIGKILL to each sidecar in turn, whatever it owns."""

    name = "kill-any"

    def choose(self, ground: Ground, i: int) -> Broker:
        return ground.kafka.nodes[i % len(ground.kafka.nodes)]


class Stop(_OneSidecar):
    """SIGTERM to the owner: an orderly end."""

    name = "stop"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim = self.choose(ground, i)
        process = sidecar_of(self.victim)
        mark = Mark.now(f"SIGTERM to sidecar {self.victim.node_id}")
        self.victim.sidecar = None
        code = process.stop(STOPS_WITHIN_S)
        took = time.monotonic() - mark.at_s
        self.find(f"sidecar {self.victim.node_id} exits with 0", f"{code} after {took:.1f} s", code == 0)
        return [mark]


class SuspendOwner(_OneSidecar):
    """SIGSTOP to the owner for longer than its session. Its connections stay open, without answers."""

    name = "suspend-owner"
    holds_s = 2 * SESSION_S
    back_before_heal = False
    """False, as unmodified clients wait on a connection that stays open, for their request timeout at most."""

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim = self.choose(ground, i)
        mark = Mark.now(f"SIGSTOP to sidecar {self.victim.node_id}")
        sidecar_of(self.victim).signal(signal.SIGSTOP)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        assert self.victim is not None
        sidecar_of(self.victim).signal(signal.SIGCONT)
        ground.kafka.wait_ready()


def end_one(drill: Drill, node: Broker) -> None:
    """Stop a sidecar in order, the front of two processes first."""
    parts = [p for p in (sidecar_of(node), node.coordinator) if p is not None]
    node.sidecar = node.coordinator = None
    for process in parts:
        code = process.stop(STOPS_WITHIN_S)
        if code != 0:
            drill.find(f"{process.name} exits with 0", code, ok=False)


def replace_one(drill: Drill, ground: Ground, node: Broker) -> None:
    """Stop a sidecar in order, start it again, and let the clients run for a moment."""
    end_one(drill, node)
    ground.kafka.start_sidecar(node)
    ground.kafka.wait_ready()
    time.sleep(CALM_S)


class RollingRestart(Drill):
    """SIGTERM to one sidecar after the other; each is started again before the next one is stopped."""

    name = "rolling-restart"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        marks = []
        for node in ground.kafka.nodes:
            marks.append(Mark.now(f"sidecar {node.node_id} is restarted"))
            replace_one(self, ground, node)
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        """Do nothing: each sidecar runs again."""
