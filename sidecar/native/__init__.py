"""Kernels over plain buffers: the C extension if it was built at install, otherwise its Python twin.

`COMPILED` says which of the two is in use. Nothing here knows about groups. twin.py and groups_twin.py document each
function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.native import groups_twin, twin, wire_twin
from sidecar.native.twin import Ints as Ints

if TYPE_CHECKING:
    from sidecar.native import _groups as groups
    from sidecar.native import _kernel as impl
    from sidecar.native import _wire as wire
else:
    try:
        from sidecar.native import _kernel as impl
        from sidecar.native import _wire as wire
    except ImportError:
        impl, wire = twin, wire_twin
    try:
        from sidecar.native import _groups as groups
    except ImportError:
        groups = groups_twin

COMPILED = impl is not twin and groups is not groups_twin

avro = impl.avro
avro_owned = impl.avro_owned
avro_partitions = impl.avro_partitions
avro_strings = impl.avro_strings
by_member = impl.by_member
changed = impl.changed
held = impl.held
lookup = impl.lookup
partitions = impl.partitions
partitions_all = impl.partitions_all
range_ = impl.range_
records = impl.records
remap = impl.remap
uniform = impl.uniform
java_hash = wire.java_hash
skip_tags = wire.skip_tags
unpack = wire.unpack
pack = wire.pack
gather = groups.gather
gather_sums = groups.gather_sums
simple = groups.simple
sticky = groups.sticky
