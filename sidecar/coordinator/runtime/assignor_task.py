"""The work of a background thread for one assignor run: computes the target assignment and encodes its records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.modern.assignor_run import Run, RunInput, RunOutput
from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.state.codec import EncodedTargets

Result = tuple[RunOutput, EncodedTargets | None]


def assigning(
    run: Run, inp: RunInput, assignor: Any | None, encoder: Encoder | None, report: Callable[[AssignorDone], None]
) -> tuple[Callable[[], Result], Callable[[Result | None, BaseException | None], None]]:
    """Returns the work, and the call for the event loop at its end. `run`: the function that the group's kind has for
    assignor runs; `assignor` None: no assignor has that name."""
    wall_ms = now().wall_ms

    def work() -> Result:
        if assignor is None:
            raise LookupError(f"there is no assignor {inp.assignor}")
        out = run(inp, assignor)
        return out, None if encoder is None else encoder.targets(inp, out, wall_ms)

    def done(result: Result | None, error: BaseException | None) -> None:
        event = AssignorDone(inp.group_id, inp, None, repr(error))
        if result is not None:
            event = AssignorDone(inp.group_id, inp, result[0])
            if encoder is not None and result[1] is not None:
                encoder.prepared(inp, result[1])
        report(event)

    return work, done
