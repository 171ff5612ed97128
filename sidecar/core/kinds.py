"""The table of kinds of groups: one row each."""

from __future__ import annotations

from sidecar.core.classic.registration import CLASSIC
from sidecar.core.migration.registration import CONSUMER, CROSSINGS
from sidecar.core.runtime.registry import Registry
from sidecar.core.share.registration import SHARE

KINDS = (CONSUMER, CLASSIC, SHARE)
REGISTRY = Registry(KINDS, CROSSINGS)
