"""The table of kinds of groups: one row each."""

from __future__ import annotations

from sidecar.core.classic.kind import CLASSIC
from sidecar.core.consumer.kind import CONSUMER
from sidecar.core.groups import Registry

KINDS = (CONSUMER, CLASSIC)
REGISTRY = Registry(KINDS)
