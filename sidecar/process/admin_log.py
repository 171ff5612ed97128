"""The log of the admin endpoint's HTTP library, in this sidecar's lines."""

from __future__ import annotations

from typing import Any

from sidecar.link.ports import Logger


class RequestLog:
    """Stands in for the library's logger. A request that is not HTTP is answered 400 and has no line: it needs no
    token, and the library would write ten lines or more that are not of the log's format."""

    def __init__(self, log: Logger) -> None:
        self._log = log

    def debug(self, *given: Any, **more: Any) -> None:
        """Ignored: clients that close early, and the like."""

    def exception(self, *given: Any, exc_info: BaseException | None = None, **more: Any) -> None:
        from aiohttp.http_exceptions import HttpProcessingError
        from aiohttp.web import RequestPayloadError

        if exc_info is not None and not isinstance(exc_info, HttpProcessingError | RequestPayloadError):
            self._log.error("a request at the admin endpoint broke", error=repr(exc_info), trace=exc_info)
