"""Structured logs on stderr: key=value for people, JSON for machines (`log.format`)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from traceback import format_exception
from typing import Any, Protocol


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Hides a package from the imports within, unless it is imported already."""
    missing = name not in sys.modules
    if missing:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        if missing:
            del sys.modules[name]


with _without("rich"):  # for traces in colours, which no line here has; it takes as long as the rest of a start
    import structlog


class Logger(Protocol):
    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


TEXT_CHARS, ELEMENTS, TRACE_CHARS = 1_000, 100, 10_000
"""Limits of one value in a line: characters of a text, elements of a list, characters of a trace. Ids come from clients
and may have 32,767 characters, and lists have an element for each member."""


def shortened(logger: Any, method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Shortens long values: clients choose the length of ids. Of an exception's trace the end stays, which has the
    fault."""
    for name, value in fields.items():
        if isinstance(value, BaseException):
            fields[name] = "".join(format_exception(value))[-TRACE_CHARS:]
        elif isinstance(value, str) and len(value) > TEXT_CHARS:
            fields[name] = f"{value[:TEXT_CHARS]}... ({len(value)} characters)"
        elif isinstance(value, list | tuple) and len(value) > ELEMENTS:
            fields[name] = [*value[:ELEMENTS], f"{len(value) - ELEMENTS} more"]
    return fields


def make_logger(level: str, form: str, **bound: Any) -> Logger:
    """Returns a logger. `form`: text, json, or auto: text if stderr is a terminal, else json."""
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"], sort_keys=False)
    )
    logger = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            shortened,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
    )
    out: Logger = logger.bind(**bound)
    return out
