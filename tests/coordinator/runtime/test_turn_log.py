"""The turns in `log.turns` are a story: played again, it writes the same records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sidecar.coordinator.runtime.turn_log import TurnLog
from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from tests.core.share.test_stories import Story as ShareStory
from tests.core.storybook import OF_MEMBERS, stories
from tests.core.streams.test_stories import Story as StreamsStory
from tests.core.test_stories import Story
from tests.inprocess.embedded_sidecar import Lines

pytestmark = pytest.mark.tier("test")

PLAYERS: dict[str, Any] = {**dict.fromkeys(OF_MEMBERS, Story), "share": ShareStory, "streams": StreamsStory}
"""The Story that plays the stories of each folder of tests/stories."""
ONE_OWNER = re.compile(r"^(takeover|authorizer|clock|pass)\b", re.MULTILINE)
"""Commands that no turn shows: the next owner begins a log of its own, and time goes on."""
SETTINGS = ("topics", "config", "topology", "grow")
"""Commands of a story that are no event: of a real group, the reader writes them."""


def commands(path: Path) -> list[str]:
    lines = (line.partition("#")[0].rstrip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("    ")]


def logged(story: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Plays the story, and returns the lines that the log has of it."""
    lines, told = Lines(), []
    log = TurnLog(lines)
    handle, wake = Shard.handle, Shard.wake

    def handled(shard: Shard, event: Event, token: int, now: Now) -> Effects:
        fx = handle(shard, event, token, now)
        log.turn(0, event, fx, now)
        return fx

    def woken(shard: Shard, now: Now) -> Effects:
        fx = wake(shard, now)
        log.turn(0, None, fx, now)
        return fx

    with monkeypatch.context() as patch:
        patch.setattr(Shard, "handle", handled)
        patch.setattr(Shard, "wake", woken)
        for line in commands(path):
            if line.split()[0] in SETTINGS:
                told.append(line)
            story.run(line)
            told += [text for _, _, fields in lines.lines for text in fields["story"].splitlines()]
            lines.lines.clear()
    return [line for line in told if not line.startswith("#")]


@pytest.mark.parametrize("folder", PLAYERS)
def test_it_can_be_pasted_into_a_story(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = stories(folder)
    of_one_owner = [p for p in told if not ONE_OWNER.search(p.read_text())]
    assert len(of_one_owner) * 3 > len(told) > 0
    for path in of_one_owner:
        first, again = PLAYERS[folder](), PLAYERS[folder]()
        for line in logged(first, path, monkeypatch):
            again.run(line)
        assert again.world.log == first.world.log, path.name
