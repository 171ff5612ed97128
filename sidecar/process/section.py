"""A section of the settings."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

INT_MAX = 2_147_483_647
LONGS = ("min_compaction_lag_ms", "idle_ms", "empty_group_check_ms")
"""Settings whose counterparts in Kafka are longs: min.compaction.lag.ms, connections.max.idle.ms and
offsets.retention.check.interval.ms."""


def fits_kafkas_int(value: Any, info: ValidationInfo) -> Any:
    """Refuses a number that no field of a request or answer has room for, as Kafka does for its settings. Bytes may be
    more: they are counted here only."""
    name = str(info.field_name)
    if isinstance(value, int) and value > INT_MAX and name not in LONGS and not name.endswith("_bytes"):
        raise ValueError(f"{value} is more than {INT_MAX}, the most of Kafka's integers")
    return value


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    _fits = field_validator("*")(fits_kafkas_int)
