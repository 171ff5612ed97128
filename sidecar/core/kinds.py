"""The table of kinds of groups: one row each."""

from __future__ import annotations

from sidecar.core.classic.kind import CLASSIC
from sidecar.core.groups import Registry
from sidecar.core.mixed.kind import CONSUMER, CROSSINGS

KINDS = (CONSUMER, CLASSIC)
REGISTRY = Registry(KINDS, CROSSINGS)
