"""Messages of APIs of groups that pass: the sidecar has no codec for them, so they are made here from Kafka's own JSON,
in the way in which those of the sidecar are made."""

from __future__ import annotations

import re
import sys
import zipfile
from functools import cache
from types import ModuleType

from sidecar.drill.artifacts import KAFKA, clients_jar
from tools.wire_emit import Emitter
from tools.wire_model import load, parse_message

PLACE = "common/message/"


@cache
def messages(name: str) -> tuple[int, ModuleType]:
    """The API's number, and a module with its request and its response."""
    with zipfile.ZipFile(clients_jar(KAFKA)) as jar:
        both = [parse_message(load(jar, name + kind)) for kind in ("Request", "Response")]
    key = both[0].api_key
    made = ModuleType(f"passed_{name}")
    sys.modules[made.__name__] = made  # dataclasses look for their module there
    exec(Emitter(both, "of the tests").run(), made.__dict__)
    return key, made


def of_groups() -> set[str]:
    """All APIs of Kafka whose requests name a group."""
    return that_name('"entityType": "groupId"')


def that_name(*words: str) -> set[str]:
    """All APIs of Kafka whose requests have one of these words in their JSON."""
    found = set()
    with zipfile.ZipFile(clients_jar(KAFKA)) as jar:
        for name in jar.namelist():
            api = re.fullmatch(f"{PLACE}(.+)Request\\.json", name)
            if api and any(word in jar.read(name).decode() for word in words):
                found.add(api[1])
    return found
