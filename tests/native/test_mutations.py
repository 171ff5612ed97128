"""Keys and numbers that empty what a kernel reads just then: it may say anything, but it must not read what is
gone. Symptom: a key of a plug-in's result ended the sidecar with a segmentation fault.

A child does it, since a fault would end this process. In it memory that is free is filled with other bytes."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.tier("test"),
    pytest.mark.skipif(find_spec("sidecar.native._groups") is None, reason="the kernels are not compiled"),
]

HEAD = """
from array import array
from sidecar.native import _groups, _kernel, _wire

def many():
    return [tuple(range(i, i + 3)) for i in range(2_000)]

class Key:
    def __init__(self, like, container):
        self.like, self.container = like, container
    def __hash__(self):
        return hash(self.like)
    def __eq__(self, other):
        self.container[0].clear()
        many()
        return True

class Number:
    def __init__(self, container):
        self.container = container
    def __index__(self):
        self.container[0].clear()
        many()
        return 1

def number(n):
    return int(str(n))

off, end = array("i", [0, 10]), array("i", [0, 1])
for n in range(100):
    box = [{}]
"""
KERNELS = {
    "gather": 'box[0][Key("a", box)] = (number(5_000 + n), number(1), n); _groups.gather([box[0]], {"a": 0}, off)',
    "gather_sums": 'box[0][Key("a", box)] = {1: number(10**12 + n)}; _groups.gather_sums([box[0]], {"a": 0}, off)',
    "lookup": 'box = [[]]; box[0] += [Key("a", box), *map(str, many())]; _kernel.lookup(box[0], {"a": number(7)})',
    "held": 'box[0][Key(b"t", box)] = {0: n}; _kernel.held(end, array("i", [0]), off, (b"t",), 0, box[0], {b"t"})',
    "pack": 'box[0][b"t" * 16] = (Number(box), number(7_000 + n)); _wire.pack("p", box[0])',
    "avro_owned": 'box[0][Key(b"t", box)] = {1: number(10**12 + n)}; _kernel.avro_owned(box[0], {b"t": b"h"}, b"")',
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_is_read_is_emptied_meanwhile(kernel: str) -> None:
    code = HEAD + "    " + KERNELS[kernel]
    child = subprocess.run([sys.executable, "-X", "dev", "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
