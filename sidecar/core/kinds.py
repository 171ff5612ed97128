"""The table of kinds of groups: one row each."""

from __future__ import annotations

from sidecar.core.classic.registration import CLASSIC
from sidecar.core.migration.registration import CONSUMER, CROSSINGS
from sidecar.core.migration.streams import with_streams
from sidecar.core.runtime.registry import Registry
from sidecar.core.share.registration import SHARE
from sidecar.core.streams.registration import STREAMS

KINDS = (CONSUMER, CLASSIC, SHARE, STREAMS)
REGISTRY = Registry(KINDS, with_streams(CROSSINGS))
