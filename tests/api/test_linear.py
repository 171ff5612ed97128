"""No handler does more than work in proportion to what was sent, whoever has sent it."""

from __future__ import annotations

import pytest

from sidecar.wire.apis import SERVED, Api
from tests.api.grown import Case, arrays, least, play, request_class, versions_of

CALLERS = ("nobody", "without rights", "member", "elsewhere")
"""Nobody has not authenticated, so that the broker answers nothing. The last one is a member of groups whose offsets
another broker keeps."""
N = 1_500
ROWS = [(Api(a), path) for a in SERVED for path in arrays(request_class(a))]


def cases(newest: bool) -> list[Case]:
    found = []
    for api, path in ROWS:
        versions = versions_of(api, path)
        for version in versions[-1:] if newest else versions[:-1]:
            found += [Case(api, version, path, c, again) for c in CALLERS for again in (False, True)]
    return found


def test_every_array_is_sent_in_some_version() -> None:
    assert not [(api.name, path) for api, path in ROWS if not versions_of(api, path)]


def grows(case: Case) -> None:
    small = least(lambda: play(case, N).total_ms, 3)
    large = least(lambda: play(case, 4 * N).total_ms, 3)
    assert large <= 5 * max(small, 0.2), f"{case}: {small:.2f} ms for {N} elements, {large:.2f} ms for {4 * N}"


@pytest.mark.parametrize("case", cases(newest=True), ids=str)
def test_four_times_the_elements_take_four_times_the_work(case: Case) -> None:
    grows(case)


@pytest.mark.tier("test")
@pytest.mark.parametrize("case", cases(newest=False), ids=str)
def test_the_same_in_older_versions(case: Case) -> None:
    grows(case)
