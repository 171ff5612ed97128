"""Turns whatever stops a command into words on stderr and an exit code, in this one place.

Commands raise Failed. Whatever else they let out is a bug of this program, but for a library of an extra that is not
installed.
"""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from sidecar.cli.exits import MEANINGS, Code, Failed
from sidecar.cli.plain import echo, plain

EXTRAS = {"audit": ("pyspark", "pandas", "pyarrow", "numpy", "deltalake", "duckdb"), "iceberg": ("pyiceberg",)}
"""Extra of the package -> the modules that it brings."""
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The error of click, which some versions of typer bring with them."""
CODES = "\n\n".join(["Exit codes:", *(f"{int(code)}: {text}" for code, text in MEANINGS.items())])


class Program(TyperGroup):
    """The root of all commands."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with _plain_usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            try:
                with _plain_usage():
                    return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # an error at the very end would go to stderr
        except KeyboardInterrupt:  # older versions of typer end with 1
            raise typer.Exit(int(Code.INTERRUPTED)) from None
        except BrokenPipeError as exc:  # a connection's is one, too, and typer takes any for stdout's
            if not _unread():
                broken(exc)
            raise typer.Exit(int(Code.UNREAD)) from None

    def main(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().main(*args, **kwargs)
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError) and end.code == 1:  # rich ends the program by itself
                end.code = int(Code.UNREAD)
            raise
        except Failed as failed:
            end_with(failed)
        except ModuleNotFoundError as exc:
            extra = next((e for e, names in EXTRAS.items() if (exc.name or "").partition(".")[0] in names), None)
            if extra is None:
                broken(exc)
            what = f"This command needs the extra [{extra}], which is not installed: there is no module {exc.name}."
            end_with(Failed(Code.USAGE, what, f"pip install 'kafka-group-sidecar[{extra}]'"))
        except Exception as exc:  # noqa: BLE001 - whatever it is: its code must not be one that means findings
            broken(exc)


@contextmanager
def _plain_usage() -> Iterator[None]:
    """Makes the text of a usage error harmless: it repeats what was typed."""
    try:
        yield
    except USAGE_ERROR as exc:
        exc.message = plain(exc.message)  # type: ignore[attr-defined]
        raise


def print_failure(failed: Failed) -> None:
    for line in (*failed.what.split("\n"), *failed.then.splitlines()):
        echo(line, err=True)


def _unread() -> bool:
    """Returns whether stdout has no reader any more. If so, the rest of its buffer is discarded."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file
        return False
    poll = select.poll()
    poll.register(number, 0)
    if not poll.poll(0):
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
    return True


def end_with(failed: Failed) -> NoReturn:
    print_failure(failed)
    sys.exit(int(failed.code))


def broken(exc: Exception) -> NoReturn:
    for line in "".join(traceback.format_exception(exc)).rstrip("\n").split("\n"):
        echo(line, err=True)
    echo(f"This is a bug of this program: {type(exc).__name__}.", err=True)
    echo("Report it with the lines above and with what `sidecar --version` says.", err=True)
    sys.exit(int(Code.BROKEN))
