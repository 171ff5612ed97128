"""Plays a random test with many seeds; the seed that fails is named with the command that replays it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

ENOUGH = 100
"""A figure of which a run must have fewer than so many is not judged: by chance alone there may be fewer."""


def hold(play: Callable[[int], None], seeds: Iterable[int], replay: str) -> None:
    """Plays every seed. `replay`: the command that plays `{seed}` alone."""
    for seed in seeds:
        try:
            play(seed)
        except Exception as exc:
            exc.add_note(f"seed {seed} fails; it alone: {replay.format(seed=seed)}")
            raise


def alone(test: str) -> str:
    """Returns the command that replays one seed of a test which plays the seeds of the run (the fixture `seeds`)."""
    return f"FIRST_SEED={{seed}} .venv/bin/python -m pytest --tier quick '{test}'"


def too_few(
    figures: Mapping[str, int], least: Mapping[str, float], seeds: int, enough: int = ENOUGH
) -> dict[str, tuple[int, float]]:
    """Returns the figures below their least average per seed, each with the least number. A share of the seeds judges
    only what must add up to `enough`."""
    wanted = {what: n * seeds for what, n in least.items() if n * seeds >= enough}
    return {what: (figures.get(what, 0), n) for what, n in wanted.items() if figures.get(what, 0) < n}
