"""Every API of groups, with every right present or missing: through the sidecar as at the broker itself, while the
owner is beside the broker that keeps the offsets, and while it is elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.security.ground import Secured
from tests.security.matrix_bench import EVERYBODY, PROPERTIES, USERS, Bench, Site, start
from tests.security.matrix_cases import CASES, Case, Question

pytestmark = pytest.mark.kafka
BY_NAME = {c.name: c for c in CASES}
AT_ONCE = 16
"""Users that ask at the same time."""
SHOWN = 6


@dataclass
class Matrix:
    bench: Bench
    native: Site
    beside: Site
    direct: dict[tuple[str, int, str], Any] = field(default_factory=dict)
    """What the broker itself answered, by case, version and user."""

    async def answers(self, case: Case, site: Site) -> dict[tuple[str, int, str], Any]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(version: int, user: str) -> Any:
            async with gate:
                return await case.ask(Question(self.bench, site, user, version))

        keys = [(case.name, v, u) for v in case.versions for u in USERS[case.users]]
        return dict(zip(keys, await asyncio.gather(*(one(v, u) for _, v, u in keys)), strict=True))

    def compare(self, case: Case, site: Site) -> None:
        if not any(name == case.name for name, *_ in self.direct):
            self.direct |= self.bench.run(self.answers(case, self.native))
        ours = self.bench.run(self.answers(case, site))
        wrong = [(k[1:], self.direct[k], ours[k]) for k in ours if ours[k] != self.direct[k]]
        told = "\n".join(f"{who}\n  Kafka   {theirs}\n  sidecar {mine}" for who, theirs, mine in wrong[:SHOWN])
        assert not wrong, f"{len(wrong)} of {len(ours)} answers of {site.name} differ:\n{told}"
        assert len({repr(a) for a in ours.values()}) > 1 or case.name in SAME_FOR_ALL


SAME_FOR_ALL = frozenset(("SyncGroup without a protocol", "JoinGroup of another's group"))
"""No right changes the answer."""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    bench = start(Secured(tmp_path_factory.mktemp("matrix"), users=EVERYBODY, more=PROPERTIES))
    try:
        made = Matrix(bench, bench.direct(), bench.through("beside"))
        for site in (made.native, made.beside):
            bench.run(bench.populate(site))
        bench.run(bench.transaction(made.native, made.beside))
        yield made
    finally:
        bench.close()
        bench.kafka.stop()


@pytest.mark.parametrize("name", BY_NAME)
def test_the_owner_is_beside_the_offsets(matrix: Matrix, name: str) -> None:
    matrix.compare(BY_NAME[name], matrix.beside)


@pytest.fixture(scope="module")
def away(matrix: Matrix) -> Site:
    matrix.bench.move_owner()
    return matrix.bench.through("away")


@pytest.mark.parametrize("name", BY_NAME)
def test_the_owner_is_elsewhere(matrix: Matrix, away: Site, name: str) -> None:
    assert away.port != matrix.beside.port
    matrix.compare(BY_NAME[name], away)
