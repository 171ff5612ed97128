"""No handler does more than work in proportion to what was sent, whoever has sent it, and none holds the loop for long.

CPU is measured, and the least of a few tries counts: what else the machine does only adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.api import slices
from sidecar.wire.apis import SERVED, Api
from tests.api.grown import Case, Taken, arrays, play, request_class, versions_of

CALLERS = ("nobody", "without rights", "member", "elsewhere")
"""Nobody has not authenticated, so that the broker answers nothing. The last one is a member of groups whose offsets
another broker keeps."""
N, TRIES = 400, 6
LARGE = 10_000
"""Elements of a request that is large and allowed."""
STRETCH_MS, FLOOR_MS, PER_MB_MS = 20, 1, 2_500
"""A stretch without a pause; what is too short to be measured; all work for one MB of the smallest elements."""
ROWS = [(Api(a), path) for a in SERVED for path in arrays(request_class(a))]


def cases(
    newest: bool, callers: tuple[str, ...] = CALLERS[1:], repeated: tuple[str, ...] = ("member",)
) -> list[Case]:
    """`repeated`: the callers that name one element again and again, too. What is done for nobody is where the work for
    the others begins."""
    found = []
    for api, path in ROWS:
        versions = versions_of(api, path)
        for version in versions[-1:] if newest else versions[:-1]:
            found += [Case(api, version, path, c, repeated=False) for c in callers]
            found += [Case(api, version, path, c, repeated=True) for c in repeated]
    return found


def tries(case: Case, n: int) -> Iterator[Taken]:
    return (play(case, n) for _ in range(TRIES))


def grows(case: Case, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slices, "SMALL_BYTES", 0)  # the few are read in slices, too, as the many
    small = large = float("inf")
    for a, b in zip(tries(case, N), tries(case, 4 * N), strict=True):
        small, large = min(small, a.total_ms), min(large, b.total_ms)
        if large <= 5 * max(small, FLOOR_MS):
            return
    pytest.fail(f"{case}: {small:.2f} ms for {N} elements, {large:.2f} ms for {4 * N}")


def test_every_array_is_sent_in_some_version() -> None:
    assert not [(api.name, path) for api, path in ROWS if not versions_of(api, path)]


@pytest.mark.parametrize("case", cases(newest=True), ids=str)
def test_four_times_the_elements_take_four_times_the_work(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    grows(case, monkeypatch)


@pytest.mark.tier("test")
@pytest.mark.parametrize("case", cases(newest=False, callers=CALLERS, repeated=CALLERS), ids=str)
def test_the_same_in_older_versions(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    grows(case, monkeypatch)


@pytest.mark.tier("test")
@pytest.mark.parametrize("case", cases(newest=True, callers=CALLERS, repeated=()), ids=str)
def test_a_large_request_holds_the_loop_for_a_moment_only(case: Case) -> None:
    stretch = total = float("inf")
    for taken in tries(case, LARGE):
        stretch, total = min(stretch, taken.stretch_ms), min(total, 1e6 * taken.total_ms / taken.request_bytes)
        if stretch <= STRETCH_MS and total <= PER_MB_MS:
            return
    pytest.fail(f"{case}: {stretch:.1f} ms without a pause, {total:.0f} ms for a MB")
