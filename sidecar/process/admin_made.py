"""The admin endpoint of a process. app.py imports this when clients are served: it takes as long as all that they
need."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sidecar.process.about import about
from sidecar.process.admin import Admin
from sidecar.process.admin_access import Access
from sidecar.process.admin_page import Pages

if TYPE_CHECKING:
    from sidecar.process.app import App


def admin_of(app: App, access: Access) -> Admin:
    s = app.settings
    pages = Pages(s.node_id, s.role, app.problems, lambda: app.half.views)
    sources = app.metrics, app.problems, app.owners, app.group, partial(about, s)
    return Admin(s.admin, *sources, access, pages, app.shared.denials.shown)
