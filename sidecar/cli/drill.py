"""`sidecar drill`: the drills of sidecar/drill, from an installed package as from a checkout."""

from __future__ import annotations

import typer

from sidecar.cli.exits import Code


def drill(context: typer.Context) -> None:
    """Play faults on real brokers and sidecars of this machine: kill, suspend, cut, fill the disk. Needs Java.

    The arguments are those of `make drill`: NAME ... --n ROUNDS --kafka VERSION --out FOLDER; see --help. Brokers are
    fetched from Maven. Exit code 1: something was lost, owned twice, or did not come to its end."""
    from sidecar.drill.drills.__main__ import main

    raise typer.Exit(main(context.args) or int(Code.OK))
