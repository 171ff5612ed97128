"""Structured logs on stderr: key=value for people, JSON for machines (`log.format`)."""

from __future__ import annotations

import logging
import sys
from typing import Any, Protocol

import structlog


class Logger(Protocol):
    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def make_logger(level: str, form: str, **bound: Any) -> Logger:
    """`form`: text, json, or auto for what suits stderr."""
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
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
    )
    out: Logger = logger.bind(**bound)
    return out
