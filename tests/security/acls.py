"""ACLs of real brokers, made and deleted so that every broker knows of it when the call returns: the controller
answers as soon as its log has the change, and each broker reads that log at its own pace.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Mapping, Sequence

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.kafka.properties import of

DESCRIBE_ACLS, VERSION = 29, 1
KNOWN_WITHIN_S = 60.0
AGAIN_S = 0.02


def create(admin: AdminClient, kafka: LocalKafka, acls: Sequence[AclBinding], login: Mapping[str, str]) -> None:
    """`login`: Java's properties of a user who may describe ACLs at the brokers' own listener."""
    for future in admin.create_acls(list(acls)).values():
        future.result(30)
    wait_until_known(kafka, acls, login)


def delete(
    admin: AdminClient, kafka: LocalKafka, filters: Sequence[AclBindingFilter], login: Mapping[str, str]
) -> list[AclBinding]:
    """Returns those that were deleted."""
    gone = [acl for future in admin.delete_acls(list(filters)).values() for acl in future.result(30)]
    wait_until_known(kafka, filters, login, there=False)
    return gone


def wait_until_known(
    kafka: LocalKafka, acls: Iterable[AclBinding | AclBindingFilter], login: Mapping[str, str], there: bool = True
) -> None:
    """Waits until each broker describes some ACL for each of these; without `there`, none."""
    asyncio.run(_wait_for_acls(kafka, [_request(acl) for acl in acls], login, there))


async def _wait_for_acls(kafka: LocalKafka, asked: list[bytes], login: Mapping[str, str], there: bool) -> None:
    async with asyncio.timeout(KNOWN_WITHIN_S):
        for address in kafka.internal.split(","):
            host, port = address.rsplit(":", 1)
            conn = await BrokerConnection.open(host, int(port), "acls", timeout_s=30, security=of(login))
            try:
                for body in asked:
                    while _found(await conn.raw(DESCRIBE_ACLS, VERSION, body, flexible=False)) != there:
                        await asyncio.sleep(AGAIN_S)
            finally:
                conn.close()


def _request(acl: AclBinding | AclBindingFilter) -> bytes:
    """DescribeAclsRequest v1: a filter, in which null matches every name, principal or host."""
    assert isinstance(acl.restype, ResourceType) and isinstance(acl.resource_pattern_type, ResourcePatternType)
    assert isinstance(acl.operation, AclOperation) and isinstance(acl.permission_type, AclPermissionType)
    kind = struct.pack(">b", acl.restype.value)
    pattern = struct.pack(">b", acl.resource_pattern_type.value)
    what = struct.pack(">bb", acl.operation.value, acl.permission_type.value)
    return kind + _text(acl.name) + pattern + _text(acl.principal) + _text(acl.host) + what


def _text(value: str | None) -> bytes:
    if value is None:
        return struct.pack(">h", -1)
    return struct.pack(">h", len(value.encode())) + value.encode()


def _found(frame: bytes) -> bool:
    """Whether a DescribeAclsResponse v1 has resources: after its size, the correlation id, the throttle time, the error
    code and its message."""
    code, length = struct.unpack_from(">hh", frame, 12)
    assert code == 0, frame
    (resources,) = struct.unpack_from(">i", frame, 16 + max(length, 0))
    return bool(resources)
