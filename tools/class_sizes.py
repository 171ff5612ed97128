"""Measures classes: one with more methods, attributes or constructor arguments than LIMITS says is asked whether it is
two concepts. Those that stay larger stand in LARGE with their reason, and their numbers only go down.

python -m tools.class_sizes      # the classes over the limits, as they are now

An attribute is what a method of the class stores to `self`; a dataclass has no constructor of its own.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tools.imports import ROOT, read


class Size(NamedTuple):
    methods: int
    attributes: int
    arguments: int

    def over(self, limits: Size) -> bool:
        return any(mine > limit for mine, limit in zip(self, limits, strict=True))

    def __str__(self) -> str:
        return f"{self.methods} methods, {self.attributes} attributes, {self.arguments} constructor arguments"


LIMITS = Size(25, 15, 8)
ROOT_OF_A_ROOM = "puts the parts of its room together, and hands on what one part tells the others"
LARGE: Mapping[str, tuple[Size, str]] = {
    "LocalKafka": (Size(40, 6, 0), "one method for each thing that drills and tests do to a cluster, and little state"),
    "OwnersGroup": (Size(22, 29, 9), "the life of one membership; placement and what it says of itself may go"),
    "Coordinator": (Size(32, 27, 10), ROOT_OF_A_ROOM),
    "ClientConnection": (Size(27, 29, 2), "the state machine of one connection: one concept (the review says so)"),
    "ClusterWatch": (Size(22, 14, 9), ROOT_OF_A_ROOM),
    "App": (Size(18, 17, 4), ROOT_OF_A_ROOM),
    "BrokerWatch": (Size(16, 16, 6), "one concept, with the figures of what it measures"),
    "Admin": (Size(10, 13, 9), "the pages of one HTTP server, each of which is given"),
    "Coordination": (Size(9, 10, 9), ROOT_OF_A_ROOM),
}
"""Class, its size, and why it is not two classes (yet)."""


def size_of(node: ast.ClassDef) -> Size:
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    stored = {
        n.attr
        for method in methods
        for n in ast.walk(method)
        if isinstance(n, ast.Attribute)
        and isinstance(n.ctx, ast.Store)
        and isinstance(n.value, ast.Name)
        and n.value.id == "self"
    }
    made = next((m.args for m in methods if m.name == "__init__"), None)
    arguments = 0 if made is None else len(made.posonlyargs + made.args + made.kwonlyargs) - 1
    return Size(len(methods), len(stored), arguments)


def classes_of(tree: ast.AST) -> Iterator[tuple[str, Size]]:
    """Every class, also within others and within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, size_of(node)


def large(classes: Iterable[tuple[str, Size]]) -> dict[str, Size]:
    """Returns the classes over the limits, the largest first. Of several with one name the largest numbers count."""
    sizes: dict[str, Size] = {}
    for name, size in classes:
        if size.over(LIMITS):
            sizes[name] = Size(*map(max, size, sizes.get(name, size)))
    return dict(sorted(sizes.items(), key=lambda row: row[1], reverse=True))


def problems(sizes: Mapping[str, Size], listed: Mapping[str, tuple[Size, str]]) -> Iterator[str]:
    """Yields the classes that the list does not allow, and the entries that it no longer needs."""
    for name, size in sizes.items():
        allowed = listed[name][0] if name in listed else LIMITS
        if size.over(allowed):
            yield f"{name}: {size}, and tools/class_sizes.py allows {allowed}: split it by concept"
    for name, (allowed, _) in listed.items():
        if name not in sizes:
            yield f"{name}: within the limits, or gone; take it out of tools/class_sizes.py"
        elif allowed.over(sizes[name]):
            yield f"{name}: {sizes[name]}, and tools/class_sizes.py allows {allowed}: lower it"


def main() -> int:
    modules = read(ROOT).values()
    sizes = large(row for m in modules if not m.generated for row in classes_of(m.tree))
    for name, size in sizes.items():
        reason = LARGE[name][1] if name in LARGE else ""
        print(f'    "{name}": (Size({size.methods}, {size.attributes}, {size.arguments}), "{reason}"),')
    return 0


if __name__ == "__main__":
    sys.exit(main())
