"""Explanations of a group: each file of tests/audit/explain/stories has a story and its explanations.

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
from sidecar.audit.explain.whatif import what_if
from sidecar.audit.explain.words import if_words, words
from sidecar.coordinator.inspect.live_state import live
from sidecar.core.runtime.inspect import Live
from tests.audit.explain.recorded_story import RecordedStory
from tests.core.test_stories import GROUP
from tests.process.test_admin_views import done

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


def run_line(recorded: RecordedStory, line: str) -> list[str]:
    verb, *rest = line.split()
    if verb == "claim":
        recorded.claim(int(rest[0]), rest[1], recorded.now_ms)
        return []
    image = recorded.story.world.shard.image
    try:
        if verb == "explain":
            state = done(live(recorded.story.world.shard, GROUP, recorded.now_ms)) if rest else None
            owner = None if state is None else Live.of(json.loads(json.dumps(state)))
            return words(explain(recorded.replayed(), image, live=owner), recorded.now_ms)
        options = dict(w.split("=") for w in rest)
        leaves = tuple(filter(None, options.get("leaves", "").split(",")))
        return if_words(
            what_if(recorded.replayed(), image, lambda kind: BUILT_IN, leaves, int(options.get("joins", 0)))
        )
    except ExplainError as exc:
        return [f"ExplainError: {exc} {exc.then}"]


@pytest.mark.parametrize("path", STORIES, ids=lambda p: p.stem)
def test_what_is_told_of_a_group(path: Path, request: pytest.FixtureRequest) -> None:
    recorded, wanted, got = RecordedStory(), path.read_text(), []
    for line in wanted.splitlines():
        if line.startswith("    ") or not line.strip():
            continue
        got.append(line)
        if line.startswith("#"):
            continue
        if line.split()[0] in ("explain", "if", "claim"):
            got += [f"    {text}" for text in run_line(recorded, line)]
        else:
            recorded.play(line)
    text = "\n".join(got) + "\n"
    if request.config.getoption("--rewrite"):
        path.write_text(text)
    assert text == wanted
