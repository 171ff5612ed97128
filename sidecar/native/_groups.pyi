from array import array

from sidecar.native.twin import Ints

def simple(
    off: Ints,
    class_off: Ints,
    class_topics: Ints,
    class_of: Ints,
    allowed: Ints,
    held_off: Ints,
    held: Ints,
    walk: Ints,
    turn: Ints,
) -> tuple[bytearray, bytearray]: ...
def sticky(
    proc_off: Ints,
    proc_members: Ints,
    task_off: Ints,
    stateful: Ints,
    active_off: Ints,
    active: Ints,
    standby_off: Ints,
    standby: Ints,
    hint_off: Ints,
    hint: Ints,
    hint_sums: bytes | bytearray | array[int],
    replicas: int,
) -> tuple[bytearray, bytearray, bytearray, bytearray]: ...
