"""A lost state topic that comes back from a dump."""

from __future__ import annotations

import time

from sidecar.drill.drills.commands import command, find_well, must
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.judge import find_before_deletion
from sidecar.drill.drills.sidecars import end_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.drills.topic import delete
from sidecar.drill.members import Member

REFUSED = 1
"""Exit code of a command that refuses."""
OLDER = "older"
"""Option of the drill: the dump is older in each round."""


class Restore(Drill):
    """All sidecars are stopped, the state topic is dumped, deleted and loaded, and they are started. In every second
    round the dump is older: a group was assigned anew since, and in each group a member left and a member joined. Then
    the applications are stopped until the sidecars are ready."""

    name = "restore"
    patience_s = 150.0
    """Seconds until the groups must be served. Members that are gone, but are in the older dump, are removed when their
    sessions are over (45 s)."""

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        k, older = ground.kafka, bool(i % 2) or bool(self.options.get(OLDER))
        file = k.folder / f"state-{time.strftime('%H%M%S')}-{i}.jsonl.gz"
        where = ("--bootstrap", k.internal, *k.command_config)
        moved = ground.under_test[0].members[0].group
        if older:
            ground.report(must("state", "dump", str(file), *where))
            self._time_passes(ground, moved)
        find_before_deletion(self, ground)  # not while the sidecars are stopped: it takes as long as half a session
        before = self._epochs(ground)
        mark = Mark.now(
            f"all sidecars are stopped, and the state topic is restored from {'an older' if older else 'a'} dump"
        )
        early, _ = command("state", "load", str(file), *where, "--create")
        for node in k.nodes:
            end_one(self, node)
        if not older:
            ground.report(must("state", "dump", str(file), *where))
        full, why = command("state", "load", str(file), *where, "--create")
        self.find("a topic with records is not written to", why.splitlines()[:1], (early, full) == (REFUSED, REFUSED))
        delete(ground)
        ground.report(must("state", "load", str(file), *where, "--create"))
        if older:
            for client in ground.clients:
                client.process.kill()  # without a sidecar they cannot leave their groups
        started = time.monotonic()
        for node in k.nodes:
            k.start_sidecar(node)
        k.wait_ready(90)
        ground.report(f"the sidecars are ready {time.monotonic() - started:.1f} s after their start")
        if older:
            for c in ground.under_test:
                for client in list(c.clients):
                    c.replace(client)
        ground.settled(self.patience_s)
        find_well(self, ground, "after the restore")
        after = self._epochs(ground)
        anew = sorted(group for group, epoch in before.items() if after[group] != epoch)
        if older:
            self.find("members that had to join again, with an older dump", anew, anew == [moved])
        else:
            self.find("members that had to join again", anew, not anew)
        return [mark]

    def _time_passes(self, ground: Ground, group: str) -> None:
        """Make changes that the dump does not have: an epoch of this group, and in each group under test a member that
        leaves and one that joins."""
        where = ("--bootstrap", ground.kafka.bootstrap, *ground.kafka.command_config)
        must("groups", "rebalance", group, *where, "--reason", "after the dump")
        for c in ground.under_test:
            c.restart(c.clients[-1])
        ground.settled(self.patience_s)

    def heal(self, ground: Ground, i: int) -> None:
        """Do nothing: the fault includes its healing."""

    @staticmethod
    def _epochs(ground: Ground) -> dict[str, int]:
        members: list[Member] = [m for c in ground.under_test for m in c.members]
        return {m.group: m.epoch for m in members}
