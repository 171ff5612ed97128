"""The same functions once more, in slices: what reads or writes an array gives the event loop a turn now and then.

Each is the text of its plain twin, as a generator. Before an array it yields how many elements come, so that they can
be counted before they are made, and 0 after each `STRIDE` of them.
"""

from __future__ import annotations

import re

STRIDE = 256
"""A power of two."""
_LOOP = re.compile(r"^( *)for (_|[xy]_\w+) in (.+):$")
_INTS = re.compile(r"^( *)\w+ = list\(Struct\(")
_CALL = re.compile(r"\b_([de])(\d+)_(\w+)\(")
_HEAD = re.compile(r"^def _([de])(\d+_\w+)\((.*)\) -> (.*):$")


class Twins:
    """The twins in one module. `wanted`: whether it has any."""

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self._known: set[str] = set()
        """The plain functions that have one."""

    def both(self, plain: list[str]) -> list[str]:
        """Returns this function, and its twin if there is an array in it."""
        twin: list[str] = []
        for line in plain if self.wanted else ():
            if head := _HEAD.match(line):
                name = f"_{head[1]}{head[2]}"
                twin.append(f"def _{head[1]}s{head[2]}({head[3]}) -> Generator[int, None, {head[4]}]:")
            elif loop := _LOOP.match(line):
                twin += _loop(*loop.groups())
            elif ints := _INTS.match(line):
                twin += [f"{ints[1]}yield n", line]
            else:
                twin.append(self._within(line))
        if not any("yield" in line for line in twin):
            return plain
        self._known.add(name)
        return plain + twin

    def _within(self, line: str) -> str:
        call = _CALL.search(line)
        if call is None or f"_{call[1]}{call[2]}_{call[3]}" not in self._known:
            return line
        return f"{line[: call.start()]}yield from _{call[1]}s{call[2]}_{call[3]}({line[call.end() :]}"

    def entries(self, name: str, snaked: str, index: dict[int, int]) -> list[str]:
        """Returns the functions by which the twins of a whole message are called. `index`: version -> number of its
        layout."""
        read, write = (
            {v: f"_{kind}s{i}_{name}" for v, i in index.items() if f"_{kind}{i}_{name}" in self._known}
            for kind in ("d", "e")
        )
        return _entries(name, snaked, read, write) if self.wanted else []

    def methods(self, name: str, snaked: str) -> list[str]:
        """Returns the methods of the message's class that call its twins."""
        if not self.wanted:
            return []
        return [
            "",
            "    @staticmethod",
            f"    def decode_in_slices(version: int, buf: bytes, pos: int = 0) -> Generator[int, None, {name}]:",
            f"        return decode_{snaked}_in_slices(version, buf, pos)",
            "",
            "    def encode_in_slices(self, version: int, out: bytearray) -> Generator[int, None, None]:",
            f"        return encode_{snaked}_in_slices(version, self, out)",
        ]


def _loop(indent: str, name: str, over: str) -> list[str]:
    pause = [f"{indent}    if k & {STRIDE - 1} == {STRIDE - 1}:", f"{indent}        yield 0"]
    if name == "_":
        return [f"{indent}yield n", f"{indent}for k in {over}:", *pause]
    return [f"{indent}yield len({over})", f"{indent}for k, {name} in enumerate({over}):", *pause]


def _entries(name: str, snaked: str, reads: dict[int, str], writes: dict[int, str]) -> list[str]:
    """`reads`, `writes`: the twin of each version that has one."""
    read, write = f"_DECODE_SLICES_{snaked.upper()}", f"_ENCODE_SLICES_{snaked.upper()}"
    return [
        "",
        "",
        f"{read}: dict[int, Callable[[bytes, int, int], Generator[int, None, tuple[{name}, int]]]] = {{",
        *[f"    {v}: {fn}," for v, fn in reads.items()],
        "}",
        f"{write}: dict[int, Callable[[{name}, bytearray], Generator[int, None, None]]] = {{",
        *[f"    {v}: {fn}," for v, fn in writes.items()],
        "}",
        "",
        "",
        f"def decode_{snaked}_in_slices(version: int, buf: bytes, pos: int = 0) -> Generator[int, None, {name}]:",
        f"    fn = {read}.get(version)",
        "    if fn is None:",
        f"        return decode_{snaked}(version, buf, pos)[0]",
        "    try:",
        "        msg, _ = yield from fn(buf, pos, len(buf))",
        "    except (_struct_error, IndexError) as exc:",
        f'        raise WireError(f"{name} v{{version}}: {{exc}}") from None',
        "    return msg",
        "",
        "",
        f"def encode_{snaked}_in_slices(version: int, msg: {name}, out: bytearray) -> Generator[int, None, None]:",
        f"    fn = {write}.get(version)",
        "    if fn is None:",
        f"        encode_{snaked}(version, msg, out)",
        "    else:",
        "        yield from fn(msg, out)",
    ]
