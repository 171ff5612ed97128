"""The modules of a package, read from its files, and what each imports of the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "sidecar"
GENERATED = "wire/generated/"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    name: str
    file: str  # relative to the package, with slashes
    room: str
    lines: int
    tree: ast.Module

    @property
    def generated(self) -> bool:
        return self.file.startswith(GENERATED)


@dataclass(frozen=True)
class Import:
    source: Module
    target: Module
    line: int
    where: str  # "", "in a function" or "TYPE_CHECKING"

    def __str__(self) -> str:
        return f"{self.source.file}:{self.line} imports {self.target.file}{self.where and f'  ({self.where})'}"


def read(root: Path) -> dict[str, Module]:
    """Every Python file of the package by its dotted name; a stub stands for a compiled module without a source."""
    modules: dict[str, Module] = {}
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")], key=lambda p: (p.suffix, p)):
        inside = path.relative_to(root)
        parts = [root.name, *inside.with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name not in modules:
            text = path.read_text(encoding="utf-8")
            room = inside.parts[0] if len(inside.parts) > 1 else root.name
            lines = text.count("\n") + (text != "" and not text.endswith("\n"))
            modules[name] = Module(name, inside.as_posix(), room, lines, ast.parse(text, str(path)))
    return modules


def _names(node: ast.AST, module: Module) -> Iterator[str]:
    """The dotted names a node imports. The last part of a name may be an object in a module, not a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            up = node.level - (Path(module.file).stem == "__init__")
            package = module.name.split(".")[: -up or None]
            base = ".".join([*package, base] if base else package)
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
        yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def _importing(tree: ast.AST, where: str = "") -> Iterator[tuple[ast.AST, str]]:
    """All nodes below a node, each with the kind of place it stands in."""
    for node in ast.iter_child_nodes(tree):
        yield node, where
        if isinstance(node, Function):
            yield from _importing(node, "in a function")
        elif isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            yield from _importing(ast.Module(node.body, []), "TYPE_CHECKING")
            yield from _importing(ast.Module(node.orelse, []), where)
        else:
            yield from _importing(node, where)


def imports_of(modules: Mapping[str, Module]) -> list[Import]:
    """Every import of one module of the package by another, in the order of the files."""
    found: dict[Import, None] = {}
    for module in modules.values():
        for node, where in _importing(module.tree):
            for name in _names(node, module):
                known = name
                while known and known not in modules:
                    known = known.rpartition(".")[0]
                if known and known != module.name:
                    found[Import(module, modules[known], getattr(node, "lineno", 0), where)] = None
    return list(found)
