"""Kernels over int arrays: compiled where a compiler was there at install, else the same in Python.

`COMPILED` says which. Knows nothing of groups; `twin.py` documents each function.
"""

from __future__ import annotations

try:
    from sidecar.kernel._kernel import (
        avro_owned,
        avro_partitions,
        by_member,
        changed,
        partitions,
        partitions_all,
        range_,
        remap,
        uniform,
    )

    COMPILED = True
except ImportError:
    from sidecar.kernel.twin import (
        avro_owned,
        avro_partitions,
        by_member,
        changed,
        partitions,
        partitions_all,
        range_,
        remap,
        uniform,
    )

    COMPILED = False

from sidecar.kernel.twin import Ints

__all__ = [
    "COMPILED",
    "Ints",
    "avro_owned",
    "avro_partitions",
    "by_member",
    "changed",
    "partitions",
    "partitions_all",
    "range_",
    "remap",
    "uniform",
]
