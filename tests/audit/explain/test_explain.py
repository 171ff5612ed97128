"""What is said of a group: tests/audit/explain/told/*.txt hold a story, and what is told of it.

    pytest tests/audit/explain --rewrite      # then read the diff; never commit one you cannot explain

The words are those of tests/core/test_stories.py, whose answers are left out here, and: `explain`, `explain live` (the
owner is asked, too), `if leaves=MEMBER joins=N`, `claim NODE ADDRESS` (another sidecar takes the partition over).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidecar.assign import BUILT_IN
from sidecar.audit.explain.ask import explain
from sidecar.audit.explain.model import ExplainError
from sidecar.audit.explain.whatif import Change, what_if
from sidecar.audit.explain.words import if_words, words
from sidecar.coordinator.inspect.live_state import live
from sidecar.core.runtime.inspect import Live
from tests.audit.explain.told import Told
from tests.core.test_stories import GROUP
from tests.process.test_admin_views import done

STORIES = sorted((Path(__file__).parent / "told").glob("*.txt"))


def asked(told: Told, line: str) -> list[str]:
    verb, *rest = line.split()
    if verb == "claim":
        told.claim(int(rest[0]), rest[1], told.now_ms)
        return []
    image = told.story.world.shard.image
    try:
        if verb == "explain":
            said = done(live(told.story.world.shard, GROUP, told.now_ms)) if rest else None
            owner = None if said is None else Live.of(json.loads(json.dumps(said)))
            return words(explain(told.replayed(), image, live=owner), told.now_ms)
        options = dict(w.split("=") for w in rest)
        leaves = tuple(filter(None, options.get("leaves", "").split(",")))
        return if_words(what_if(told.replayed(), image, BUILT_IN, Change(leaves, int(options.get("joins", 0)))))
    except ExplainError as exc:
        return [f"ExplainError: {exc} {exc.then}"]


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_what_is_told_of_a_group(path: Path, request: pytest.FixtureRequest) -> None:
    told, wanted, got = Told(), path.read_text(), []
    for line in wanted.splitlines():
        if line.startswith("    ") or not line.strip():
            continue
        got.append(line)
        if line.startswith("#"):
            continue
        if line.split()[0] in ("explain", "if", "claim"):
            got += [f"    {text}" for text in asked(told, line)]
        else:
            told.play(line)
    text = "\n".join(got) + "\n"
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert text == wanted
