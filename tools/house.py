"""Prints how the house is built, from the code: layers, import circles, large files, functions and classes, four paths.

What is decided here: an import counts wherever it stands, inside a function and under TYPE_CHECKING too; a room is a
first-level folder of the package; circles between files and circles between rooms are both circles; generated code
takes part in the import graph, because a circle may lead through it, but its size is nobody's concern.

The paths are not read but run: `tests/house_paths.py` sets up each action without Kafka and `trace` records the calls.
Only the thread that runs the action is seen. The last line of the output is one JSON object.
"""

from __future__ import annotations

import argparse
import ast
import gc
import importlib
import inspect
import itertools
import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import cast

from tools import class_sizes, docstrings, sleeps, words
from tools.imports import ROOT, Function, Import, Module, imports_of, read

WIDTH = 120
FILE_LINES, FUNCTION_LINES = 500, 60
SPINE = ("front", "proxy", "api", "link", "coordinator", "core")  # a path should enter each at most twice: in and out
VALUES = ("core/runtime/records.py", "core/modern/records.py", "core/consumer/records.py")
"""Records that rooms hand to each other: asking a record for its own fields does not enter the room it came from."""
LIBRARIES = ("wire", "native")  # called for an answer: a path shows what was asked of them, not how they answered it
PATHS_MODULE = "tests.house_paths"
PATH_NAMES = ("steady heartbeat", "joining heartbeat", "OffsetCommit", "takeover")

Graph = Mapping[str, Collection[str]]


def circles_of(graph: Graph) -> list[list[str]]:
    """The strongly connected components of more than one node, each sorted."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen, todo = reach.setdefault(start, set()), [start]
        while todo:
            fresh = set(graph.get(todo.pop(), ())) - seen
            seen |= fresh
            todo.extend(fresh)
    circles = {tuple(sorted(other for other in reach[node] if node in reach.get(other, ()))) for node in graph}
    return sorted(list(circle) for circle in circles if len(circle) > 1)


def layers_of(graph: Graph) -> list[list[str]]:
    """The rooms by layer, lowest first: each stands one above the highest it imports. A circle shares one layer."""
    circle = {room: tuple(rooms) for rooms in circles_of(graph) for room in rooms}

    @cache
    def level(members: tuple[str, ...]) -> int:
        below = {circle.get(other, (other,)) for room in members for other in graph.get(room, ())} - {members}
        return 1 + max(map(level, below), default=-1)

    levels = {room: level(circle.get(room, (room,))) for room in graph}
    return [sorted(r for r in levels if levels[r] == n) for n in range(max(levels.values(), default=-1) + 1)]


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Every function, nested ones and methods too: its qualified name, the line it starts at, its number of lines."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}{node.name}." if isinstance(node, Function | ast.ClassDef) else prefix
        if isinstance(node, Function):
            yield name[:-1], node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1
        yield from functions_of(node, name)


class Plan:
    """The layers, circles and sizes of the house, read from the code before anything is run."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.modules = modules
        self.imports = imports_of(modules)
        crossing = [i for i in self.imports if i.source.room != i.target.room]
        self.arrows = Counter((i.source.room, i.target.room) for i in crossing)
        files: dict[str, set[str]] = {name: set() for name in modules}
        for i in self.imports:
            files[i.source.name].add(i.target.name)
        self.file_circles = circles_of(files)
        self.room_circles = circles_of(self.rooms())
        own = [module for module in modules.values() if not module.generated]
        self.long_files = [module for module in own if module.lines > FILE_LINES]
        functions = ((module, *function) for module in own for function in functions_of(module.tree))
        self.long_functions = [row for row in functions if row[3] > FUNCTION_LINES]
        self.large_classes = class_sizes.large(c for module in own for c in class_sizes.classes_of(module.tree))

    def rooms(self) -> dict[str, set[str]]:
        """Each room that holds a line of code, with the rooms it imports."""
        graph: dict[str, set[str]] = {module.room: set() for module in self.modules.values() if module.lines}
        for source, target in self.arrows:
            graph.setdefault(source, set()).add(target)
            graph.setdefault(target, set())
        return graph


@dataclass(frozen=True)
class Call:
    """One entry into a function: its depth counts the recorded calls it stands in."""

    depth: int
    room: str
    file: str  # relative to the package, with slashes
    name: str  # qualified inside its module
    line: int  # where the definition starts, decorators included; 0 for a function in C
    resumed: bool = False  # a generator or coroutine that goes on where it stopped

    def __str__(self) -> str:
        module = self.file.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
        return f"{module}.{self.name.replace('.<locals>', '')}{' (resumed)' if self.resumed else ''}"


@cache
def _getters(file: str) -> frozenset[int]:
    """The lines where the trivial properties of a file start: they only return an expression without a call."""
    lines = set()
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef):
            continue
        if not {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list} & {"property", "cached_property"}:
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        calls = any(isinstance(inner, ast.Call) for statement in body for inner in ast.walk(statement))
        if len(body) == 1 and isinstance(body[0], ast.Return) and not calls:
            lines.add(node.decorator_list[0].lineno)
    return frozenset(lines)


class Recorder:
    """A profile function that records calls of functions of one package.

    The caller is found by walking up the frames, so event loops and other foreign code may stand between two calls.
    Not recorded: what runs while a module is imported, trivial getters, and lambdas and comprehensions that their own
    room calls.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = os.path.realpath(root) + os.sep
        self.calls: list[Call] = []
        self.live: dict[FrameType, Call] = {}
        self.places: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self.enter(frame)
        elif event == "return":
            self.live.pop(frame, None)
        elif event == "c_call":
            self.enter_c(frame, arg)

    def place(self, code: CodeType) -> str | None:
        """The file of a code object relative to the package; None if it is not in the package."""
        name = code.co_filename
        if name not in self.places:
            path = os.path.realpath(name)
            inside = path.startswith(self.folder)
            self.places[name] = path[len(self.folder) :].replace(os.sep, "/") if inside else None
        return self.places[name]

    def room(self, file: str) -> str:
        return file.partition("/")[0] if "/" in file else self.root.name

    def caller(self, frame: FrameType | None) -> tuple[Call | None, bool]:
        """The recorded call that a frame stands in, and whether a module is being imported in between."""
        while frame is not None:
            if call := self.live.get(frame):
                return call, False
            if frame.f_code.co_name == "<module>" and self.place(frame.f_code) is not None:
                return None, True
            frame = frame.f_back
        return None, False

    def enter(self, frame: FrameType) -> None:
        code = frame.f_code
        file = self.place(code)
        if file is None or not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or class is no function
            return
        caller, importing = self.caller(frame.f_back)
        room = self.room(file)
        inline = code.co_name.startswith("<") and caller is not None and caller.room == room
        if importing or inline or code.co_firstlineno in _getters(code.co_filename):
            return
        pausable = code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)
        resumed = bool(pausable) and frame.f_lineno != code.co_firstlineno
        depth = caller.depth + 1 if caller else 0
        call = Call(depth, room, file, code.co_qualname, code.co_firstlineno, resumed)
        self.calls.append(call)
        self.live[frame] = call

    def enter_c(self, frame: FrameType, function: object) -> None:
        """A compiled kernel is a function of the package too; nothing it does can be seen."""
        module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
        if not isinstance(module, str) or not module.startswith(self.root.name + ".") or not isinstance(name, str):
            return
        caller, importing = self.caller(frame)
        if not importing:
            file = module.partition(".")[2].replace(".", "/") + ".c"
            self.calls.append(Call(caller.depth + 1 if caller else 0, self.room(file), file, name, 0))


def trace(action: Callable[[], None], root: Path = ROOT) -> list[Call]:
    """Runs an action and returns the calls of the package's functions in the order in which they were entered."""
    recorder = Recorder(root)
    before, collecting = sys.getprofile(), gc.isenabled()
    gc.disable()  # a collection would close foreign generators in the middle of the path
    sys.setprofile(recorder)
    try:
        action()
    finally:
        sys.setprofile(before)
        if collecting:
            gc.enable()
    return recorder.calls


@dataclass(frozen=True)
class CallPath:
    """One path as it is printed, and what is counted about it."""

    lines: list[str]
    visited: list[str]  # rooms in the order of the first visit
    entries: dict[str, int]  # how often each room of the spine is entered from another room, or from outside

    @property
    def rooms(self) -> int:
        return len(self.visited)


@dataclass
class _Node:
    call: Call | None
    children: list[_Node] = field(default_factory=list)

    @property
    def room(self) -> str | None:
        return self.call.room if self.call else None


@dataclass(frozen=True)
class _Line:
    rooms: int  # how many rooms stand around it
    text: str
    at: str = ""

    def wrapped(self, width: int) -> list[str]:
        """The line with its place at the right edge if there is room for it, broken into several if it is too long."""
        indent = "  " * self.rooms
        if self.at and len(indent + self.text) + 2 + len(self.at) <= width:
            return [indent + self.text + self.at.rjust(width - len(indent + self.text))]
        return textwrap.wrap(self.text, width, initial_indent=indent, subsequent_indent=indent + "    ")


def path_of(calls: Iterable[Call], width: int = WIDTH - 4) -> CallPath:
    """Turns recorded calls into one path: one line for each entry of a function, indented by the rooms around it.

    Neighbouring calls of one library share a line, and neighbours that are equal with all they call become one.
    """
    stack = [_Node(None)]
    visited: dict[str, None] = {}
    entries = dict.fromkeys(SPINE, 0)
    for call in calls:
        del stack[call.depth + 1 :]
        if call.room in entries and call.room != stack[-1].room and call.file not in VALUES:
            entries[call.room] += 1
        visited[call.room] = None
        node = _Node(call)
        stack[-1].children.append(node)
        stack.append(node)
    lines = [text for block in _blocks(stack[0], -1) for line in block for text in line.wrapped(width)]
    return CallPath(lines, list(visited), entries)


def _blocks(parent: _Node, rooms: int) -> list[list[_Line]]:
    """The children of a call, each as the lines of its subtree."""
    blocks: list[list[_Line]] = []
    for library, nodes in itertools.groupby(
        parent.children, lambda node: node.room if node.room in LIBRARIES else None
    ):
        if library is not None:
            blocks += _library(library, list(nodes), rooms + 1)
            continue
        for node in nodes:
            call = cast(Call, node.call)
            inner = rooms + (node.room != parent.room)
            head = _Line(inner, str(call), f"{call.file}:{call.line}" if call.line else call.file)
            blocks.append([head, *itertools.chain.from_iterable(_blocks(node, inner))])
    folded = []
    for block, equal in itertools.groupby(blocks):
        times = len(list(equal))
        count = f" x{times}{' with its calls' * (len(block) > 1)}" if times > 1 else ""
        folded.append([replace(block[0], text=block[0].text + count), *block[1:]])
    return folded


def _library(room: str, nodes: list[_Node], rooms: int) -> list[list[_Line]]:
    """Neighbouring calls of one library on one line, without what it does inside; calls back out of it follow."""
    counts = [(name, len(list(same))) for name, same in itertools.groupby(str(node.call) for node in nodes)]
    line = _Line(rooms, ", ".join(name if times == 1 else f"{name} x{times}" for name, times in counts))
    outside = _Node(nodes[0].call)
    todo = list(nodes)
    while todo:
        node = todo.pop(0)
        outside.children += [child for child in node.children if child.room != room]
        todo = [child for child in node.children if child.room == room] + todo
    return [[line], *_blocks(outside, rooms)]


def _wrapped(head: str, parts: Iterable[str]) -> str:
    inset = " " * len(head)
    text = ", ".join(part.replace(" ", "\0") for part in parts)  # a part stays on one line
    return textwrap.fill(text, WIDTH, initial_indent=head, subsequent_indent=inset).replace("\0", " ")


def print_layers(plan: Plan) -> None:
    graph = plan.rooms()
    own = [module for module in plan.modules.values() if not module.generated and module.room in graph]
    total = f"{len(own)} files, {sum(module.lines for module in own):,} lines, generated code and C aside"
    print(f"LAYERS, highest first: a room imports only what stands below it ({total})")
    layers = layers_of(graph)
    for number in range(len(layers) - 1, -1, -1):
        for room in layers[number]:
            held = [module.lines for module in own if module.room == room]
            head = f"  {number}  {room:<12}{len(held):>3} files {sum(held):>6,} lines"
            targets = sorted(target for source, target in plan.arrows if source == room)
            arrows = [f"{target} {plan.arrows[room, target]}" for target in targets]
            print(_wrapped(f"{head}  -> ", arrows) if arrows else head)


def print_circles(plan: Plan) -> None:
    print(f"\nIMPORT CIRCLES: {len(plan.file_circles)} between files, {len(plan.room_circles)} between rooms")
    for circle in plan.file_circles:
        print(_wrapped("  files: ", (plan.modules[name].file for name in circle)))
        _print_imports(i for i in plan.imports if i.source.name in circle and i.target.name in circle)
    for rooms in plan.room_circles:
        print(_wrapped("  rooms: ", rooms))
        crossing = (i for i in plan.imports if i.source.room != i.target.room)
        _print_imports(i for i in crossing if i.source.room in rooms and i.target.room in rooms)


def _print_imports(imports: Iterable[Import]) -> None:
    for i in imports:
        print(f"    {i}")


def print_sizes(plan: Plan) -> None:
    print(f"\nFILES over {FILE_LINES} lines: {len(plan.long_files)}")
    for module in plan.long_files:
        print(f"  {module.lines:>5}  {module.file}")
    print(f"\nFUNCTIONS over {FUNCTION_LINES} lines: {len(plan.long_functions)}")
    for module, name, line, lines in plan.long_functions:
        print(f"  {lines:>5}  {module.file}:{line}  {name}")


def print_classes(plan: Plan, listed: Mapping[str, tuple[class_sizes.Size, str]]) -> list[str]:
    """Returns what the list does not allow."""
    print(f"\nCLASSES over {class_sizes.LIMITS}: {len(plan.large_classes)}")
    for name, size in plan.large_classes.items():
        print(f"  {size.methods:>3} {size.attributes:>3} {size.arguments:>3}  {name}")
    new = list(class_sizes.problems(plan.large_classes, listed))
    print(f"\nCLASSES that tools/class_sizes.py does not allow: {len(new)}")
    for problem in new:
        print(f"  {problem}")
    return new


def print_paths(root: Path) -> int | None:
    """Runs and prints each path; the most rooms that one of them passes, None if none can be run."""
    try:
        paths: dict[str, Callable[[], Callable[[], None]]] = importlib.import_module(PATHS_MODULE).PATHS
    except ImportError as problem:
        print(f"\npaths: not available ({problem})")
        return None
    print(f"\nPATHS, from bytes to bytes: indented by room; what {' and '.join(LIBRARIES)} do inside is left out")
    most = None
    for name in dict.fromkeys([*PATH_NAMES, *paths]):
        if name not in paths:
            print(f"\n  {name}: not available")
            continue
        calls = trace(paths[name](), root)
        path = path_of(calls)
        most = max(most or 0, path.rooms)
        print(f"\n  {name}: {path.rooms} rooms, {len(calls)} calls")
        print(_wrapped("    rooms    ", path.visited))
        entered = [f"{room} {n}{' (more than in and out)' * (n > 2)}" for room, n in path.entries.items() if n]
        print(_wrapped("    entered  ", entered))
        for line in path.lines:
            print(f"    {line}")
    return most


def main(
    arguments: list[str] | None = None,
    root: Path = ROOT,
    tests: Path | None = None,
    listed: Mapping[str, tuple[class_sizes.Size, str]] | None = None,
    named: Path | None = None,
) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 if a circle, a long file or function, a new sleep or word, a larger class or a docstring without a subject is found",
    )
    options = parser.parse_args(arguments)
    plan = Plan(read(root))
    print_layers(plan)
    print_circles(plan)
    print_sizes(plan)
    new_classes = print_classes(plan, listed or {})
    new_sleeps = [] if tests is None else list(sleeps.problems(tests))
    print(f"\nSLEEPS in tests that tools/sleeps.py does not allow: {len(new_sleeps)}")
    for problem in new_sleeps:
        print(f"  {problem}")
    new_words = [] if named is None else words.problems(named)
    print(f"\nWORDS of names that are neither in {words.GLOSSARY} nor in {words.PLAIN}: {len(new_words)}")
    for problem in new_words:
        print(f"  {problem}")
    subjectless = list(docstrings.faults(root.parent, (root.name,) if named is None else docstrings.FOLDERS))
    print(f"\nDOCSTRINGS that begin without a subject: {len(subjectless)}")
    for problem in subjectless:
        print(f"  {problem}")
    result: dict[str, int | None] = {
        "circles": len(plan.file_circles) + len(plan.room_circles),
        "files_over_500": len(plan.long_files),
        "functions_over_60": len(plan.long_functions),
        "classes": len(new_classes),
        "sleeps": len(new_sleeps),
        "words": len(new_words),
        "docstrings": len(subjectless),
    }
    found = any(result.values())
    result["path_rooms"] = print_paths(root)
    print()
    print(json.dumps(result, separators=(",", ":")))
    return 1 if options.check and found else 0


if __name__ == "__main__":
    sys.exit(main(tests=sleeps.TESTS, listed=class_sizes.LARGE, named=words.ROOT))
