"""The table of targets: who reads bytes from outside, and what valid bytes look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz import kernels, rooms, wire


@dataclass(frozen=True)
class Target:
    """`run` raises nothing for any bytes; what a reader may raise is caught in it. `share`: of the inputs of a run."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    share: float


TARGETS: dict[str, Target] = {
    "requests": Target(wire.request, wire.seeds_of("Request"), 0.22),
    "responses": Target(wire.response, wire.seeds_of("Response"), 0.2),
    "layouts": Target(wire.layout, wire.layout_seeds, 0.2),
    "headers": Target(wire.headers, wire.header_seeds, 0.1),
    "metadata": Target(wire.metadata, wire.metadata_seeds, 0.1),
    "connection": Target(wire.connection, wire.connection_seeds, 0.06),
    "own connection": Target(wire.own_connection, wire.own_seeds, 0.01),
    "link": Target(rooms.link, rooms.link_seeds, 0.06),
    "state topic": Target(rooms.state, rooms.state_seeds, 0.04),
    "settings": Target(rooms.settings, rooms.settings_seeds, 0.002),
    "kernels": Target(kernels.kernels, kernels.kernel_seeds, 0.1),
    "columns": Target(kernels.columns, kernels.column_seeds, 0.1),
    "session": Target(rooms.session, rooms.session_seeds, 0.01),
}
