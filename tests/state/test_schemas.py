"""A published schema file never changes and never goes away: records written with it must stay readable.

A new version of a schema is a new file, and a new line here. See sidecar/state/schemas/README.md.
"""

from __future__ import annotations

import json
from importlib import resources

import pytest
from fastavro.schema import to_parsing_canonical_form

from sidecar.core.kinds import REGISTRY
from sidecar.state.codec import latest
from sidecar.state.schema import MARK, Schemas

LATEST = latest(REGISTRY)

PUBLISHED = {
    "classic_assignment-v1.avsc": "d52175ab8c4f360b",
    "classic_group-v1.avsc": "17ebf1cb3df48115",
    "classic_group-v2.avsc": "12dd656028c4db28",
    "classic_member-v1.avsc": "c1e8e4e5e1bf1659",
    "config-v1.avsc": "dad84baa39afcada",
    "current-v1.avsc": "bba0277fc072526b",
    "group-v1.avsc": "f6baf3d2d3889a99",
    "group_state_key.avsc": "8089df6d3f754f94",
    "member-v1.avsc": "ef5c839c1592e574",
    "member-v2.avsc": "728ef049d6f0b127",
    "owner_claim-v1.avsc": "bbd66fdc1ba1ea73",
    "owner_claim-v2.avsc": "46be12deca2869c3",
    "regex-v1.avsc": "a9e126d9b18f7d7a",
    "share_current-v1.avsc": "f2a3eeb5d9cadc7e",
    "share_group-v1.avsc": "272a9e04f3279bca",
    "share_member-v1.avsc": "2f6a442d4ba227be",
    "share_placeholder-v1.avsc": "bfe8e8a6fb07819d",
    "share_target_member-v1.avsc": "8f2bfb1ee157c310",
    "share_target_metadata-v1.avsc": "3af8a74a6d2e0ae3",
    "static_member-v1.avsc": "d7a209daed3e60c6",
    "streams_current-v1.avsc": "f328b6f1a2055280",
    "streams_group-v1.avsc": "2a64496feefd8ca5",
    "streams_member-v1.avsc": "6155cbcb8db97b75",
    "streams_target_member-v1.avsc": "42f8e79497fd09eb",
    "streams_target_metadata-v1.avsc": "240bf6e4bb469808",
    "streams_topology-v1.avsc": "84f2c386734fc839",
    "target_member-v1.avsc": "1a1c4c1cfec18174",
    "target_metadata-v1.avsc": "efdd024131489f26",
}
"""File name -> its CRC-64-AVRO fingerprint, the eight bytes as they stand in a value, in hex. Only ever add lines."""

FILES = {f.name: f for f in resources.files("sidecar.state.schemas").iterdir() if f.name.endswith(".avsc")}


def fingerprint(text: str) -> str:
    """CRC-64-AVRO as the Avro specification has it: a second opinion, since `Schemas` leaves it to fastavro."""
    empty = 0xC15D213AA4D7A795
    crc = empty
    for byte in to_parsing_canonical_form(json.loads(text)).encode():
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (empty if crc & 1 else 0)
    return crc.to_bytes(8, "little").hex()


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_keeps_its_fingerprint(name: str) -> None:
    assert name in FILES, f"{name} was removed, but the state topic may still hold records of it"
    text = FILES[name].read_text()
    found = fingerprint(text)
    assert found == PUBLISHED[name], f"{name} changed after it was published: make a new version, a new file"
    assert Schemas(LATEST).learn(text).hex() == found


def test_each_file_is_pinned() -> None:
    assert set(FILES) == set(PUBLISHED), "pin the fingerprint of a new file here"


@pytest.mark.parametrize("kind", LATEST)
def test_values_begin_with_the_fingerprint_of_their_latest_schema(kind: str) -> None:
    assert Schemas(LATEST).mark(kind) == MARK + bytes.fromhex(PUBLISHED[LATEST[kind] + ".avsc"])
