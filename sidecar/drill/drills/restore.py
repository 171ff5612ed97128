"""The state topic is lost, and comes back from a dump."""

from __future__ import annotations

import time

from sidecar.drill.drills.commands import command, must
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.sidecars import STOPS_WITHIN_S, sidecar_of
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.drills.topic import delete_and_create
from sidecar.drill.members import Member

REFUSED = 1
"""Exit code of a command that will not."""


class Restore(Drill):
    """All sidecars are stopped, the state topic is dumped, deleted, made anew and loaded, and they are started."""

    name = "restore"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        k = ground.kafka
        before = self._epochs(ground)
        file = k.folder / f"state-{time.strftime('%H%M%S')}-{i}.jsonl.gz"
        where = ("--bootstrap", k.internal, *k.command_config)
        mark = Mark.now("all sidecars are stopped, and the state topic is restored from a dump")
        early, _ = command("state", "load", str(file), *where)
        for node in k.nodes:
            process, node.sidecar = sidecar_of(node), None
            code = process.stop(STOPS_WITHIN_S)
            self.find(f"sidecar {node.node_id} exits with 0", code, code == 0)
        ground.say(must("state", "dump", str(file), *where))
        full, why = command("state", "load", str(file), *where)
        self.find("a topic with records is not written to", why.splitlines()[:1], (early, full) == (REFUSED, REFUSED))
        delete_and_create(ground)
        ground.say(must("state", "load", str(file), *where))
        started = time.monotonic()
        for node in k.nodes:
            k.start_sidecar(node)
        k.wait_ready(90)
        ground.say(f"the sidecars are ready {time.monotonic() - started:.1f} s after their start")
        ground.settled(self.patience_s)
        after = self._epochs(ground)
        anew = sorted(group for group, epoch in before.items() if after[group] != epoch)
        self.find("members that had to join again", anew, not anew)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        """There is nothing to heal."""

    @staticmethod
    def _epochs(ground: Ground) -> dict[str, int]:
        members: list[Member] = [m for c in ground.companies for m in c.members]
        return {m.group: m.epoch for m in members}
