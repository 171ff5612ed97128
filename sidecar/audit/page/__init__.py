"""The page that shows an audit: one file that opens offline."""

from sidecar.audit.page.build import build
from sidecar.audit.page.model import Mark, view
from sidecar.audit.page.source import Budget, Period

__all__ = ["Budget", "Mark", "Period", "build", "view"]
