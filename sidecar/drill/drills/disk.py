"""A full disk of a broker. Each broker has a small file system of its own in memory, which needs the right to mount one
(root, or a user namespace with it)."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.drill.drills.brokers import broker_of, start_again
from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import DrillError, Process

DISK_MIB = 256
CHUNK = b"\0" * (1 << 20)
ENDS_WITHIN_S = 60.0
"""Seconds in which a broker stops that cannot write in its only log directory."""


@dataclass
class SmallDisks(LocalKafka):
    """A cluster whose brokers write to small file systems."""

    mounted: list[Path] = field(default_factory=list)

    def disk(self, node: Broker) -> Path:
        return self.folder / f"disk-{node.node_id}"

    def _data(self, node: Broker) -> Path:
        return self.disk(node) / "log"

    def start_brokers(self) -> None:
        for node in self.nodes:
            path = self.disk(node)
            path.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "kafka-drill", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise DrillError(f"no file system can be mounted as this user: {done.stderr.strip()}")
            self.mounted.append(path)
        super().start_brokers()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            umounts = [(str(p), subprocess.run(["umount", "-l", str(p)], check=False)) for p in self.mounted]
            self.mounted.clear()
        if left := [path for path, done in umounts if done.returncode != 0]:
            raise DrillError(f"these file systems are still mounted: {', '.join(left)}")


def small_disks(folder: Path, version: str) -> SmallDisks:
    return SmallDisks(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


class DiskFull(Drill):
    """The disk of the broker beside the groups' owner fills up; the broker stops, and is started when there is room."""

    name = "disk-full"
    stage = "small disks"
    beside_kafka = True
    filler: Path | None = None
    victim: Broker | None = None
    broker: Process | None = None

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        k = ground.kafka
        assert isinstance(k, SmallDisks)
        node = self.victim = ground.owner()
        self.broker, node.process = broker_of(node), None  # it may end now
        self.filler = k.disk(node) / "filler"
        marks = [Mark.now(f"the disk of broker {node.node_id} is full")]
        _fill(self.filler)
        end = time.monotonic() + ENDS_WITHIN_S
        while self.broker.alive and time.monotonic() < end:
            time.sleep(0.02)
        if self.broker.alive:
            ground.report(f"broker {node.node_id} goes on with a full disk")
        else:
            marks.append(Mark.now(f"broker {node.node_id} has ended, with {self.broker.returncode}"))
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        assert self.victim is not None and self.broker is not None and self.filler is not None
        self.broker.kill()
        self.filler.unlink()
        start_again(ground, [self.victim])


def _fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(CHUNK)
        except OSError as exc:
            if exc.errno != 28:  # ENOSPC
                raise
