"""Keys of `__group_state`: three Avro strings. Every tailed record has one, so a kernel codes them, not fastavro."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.native import avro, avro_strings
from sidecar.state.schema import StateError

ROSTER = "/sidecar.member"
"""Suffix of the names of the sidecars' own records, which look like settings of brokers
(coordinator/membership/roster.py)."""


class StateKey(NamedTuple):
    kind: str
    group_id: str
    sub_id: str


def encode_key(kind: str, group_id: str, sub_id: str) -> bytes:
    return avro(kind, group_id, sub_id)


def decode_key(raw: bytes) -> StateKey:
    try:
        return StateKey(*avro_strings(raw, 3))
    except ValueError as exc:
        raise StateError("damaged key") from exc
