"""Finds every event that the sidecar logs, in the code itself; docs/reference/logs.md is made of them.

`python -m tools.logs`, from the repository's root. What an event means and what to do stands in logs_meaning.py.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path

from tools.logs_meaning import MEANING

PAGE = Path("docs/reference/logs.md")
ROOMS = ("api", "coordinator", "core", "front", "kafka", "link", "process", "proxy", "state")
LEVELS = ("debug", "info", "warning", "error")
LOGS = {"log", "_log", "logger"}
"""Names of loggers."""
VARIES = "(varies)"
PASSES_ON = ("core/effects.py", "coordinator/coordinator.py", "front/door.py")
"""Files that pass on events of other files."""
DOOR_FIELDS = {"client", "cause", "detail", "not_logged"}
"""Fields of what front/door.py says for others, now and then."""
HEAD = """# Log events

Made by `python -m tools.logs` from the code: every event with its fields, below the highest of its levels. `timestamp`, `level`, `event` and `node_id` stand in every line.
Logs go to stderr, as [`log.format` and `log.level`](settings.md#log) say.
"""
LEVEL_MEANING = {
    "error": "Somebody should look.",
    "warning": "Look if it comes again.",
    "info": "What happened; nothing to do, unless the line says so.",
    "debug": "For whoever looks for a fault. What failed is tried again.",
}


@dataclass
class Event:
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)


def found(root: Path) -> dict[str, Event]:
    """By event. Raises ValueError for a call whose event is no literal: nobody could look it up."""
    events: dict[str, Event] = {}
    for room in ROOMS:
        for path in sorted((root / "sidecar" / room).rglob("*.py")):
            tree = ast.parse(path.read_text())
            constants = _constants(tree)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Call):
                    continue
                call = _call(node, constants, tree)
                if call is None:
                    continue
                event, level, fields = call
                if event == VARIES and f"{room}/{path.name}" in PASSES_ON:
                    continue
                if event == VARIES:
                    raise ValueError(f"{path}:{node.lineno}: an event that is no literal")
                known = events.setdefault(event, Event())
                known.levels |= level
                known.fields |= fields
                known.files.add(f"{room}/{path.name}")
    return events


def _constants(tree: ast.Module) -> dict[str, str]:
    """Module-level names of texts."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _call(node: ast.Call, constants: dict[str, str], tree: ast.Module) -> tuple[str, set[str], set[str]] | None:
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in LEVELS and _name(func.value) in LOGS and node.args:
        return _text(node.args[0], constants), {func.attr}, _keywords(node)
    if isinstance(func, ast.Attribute) and func.attr == "log_seldom" and len(node.args) == len(DOOR_FIELDS):
        return _text(node.args[0], constants), {"warning"}, DOOR_FIELDS
    if isinstance(func, ast.Attribute) and func.attr == "log" and _name(func.value) == "fx" and node.args:
        level = next((k.value for k in node.keywords if k.arg == "level"), ast.Constant("info"))
        return _text(node.args[0], constants), {_text(level, constants)}, _keywords(node) - {"level"}
    if isinstance(func, ast.Name) and func.id in ("Log", "LogLine") and node.args:
        fields = _keys(node.args[1], tree) if len(node.args) > 1 else set()
        level = node.args[2] if len(node.args) > 2 else ast.Constant("info")
        levels = [level.body, level.orelse] if isinstance(level, ast.IfExp) else [level]
        return _text(node.args[0], constants), {_text(each, constants) for each in levels}, fields
    return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(p, constants) if isinstance(p, ast.Constant) else _inserted(p, constants) for p in node.values
        )
    return constants.get(_name(node), VARIES)


def _inserted(part: ast.expr, constants: dict[str, str]) -> str:
    assert isinstance(part, ast.FormattedValue)
    text = _text(part.value, constants)
    return "..." if text == VARIES else text


def _keywords(node: ast.Call) -> set[str]:
    return {k.arg if k.arg is not None else "..." for k in node.keywords}


def _keys(node: ast.expr, tree: ast.Module) -> set[str]:
    """Returns the keys of a dict, or of the last dict that was given this name before."""
    if isinstance(node, ast.Dict):
        return {k.value for k in node.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
    if isinstance(node, ast.Name):
        earlier = [
            a
            for a in ast.walk(tree)
            if isinstance(a, ast.Assign)
            and isinstance(a.value, ast.Dict)
            and a.lineno <= node.lineno
            and any(isinstance(t, ast.Name) and t.id == node.id for t in a.targets)
        ]
        if earlier:
            return _keys(max(earlier, key=lambda a: a.lineno).value, tree)
    return {"..."}


def page(root: Path = Path()) -> str:
    """Raises KeyError for an event without a meaning."""
    events = found(root)
    lines = [HEAD]
    for level in reversed(LEVELS):
        lines += [f"## {level}\n", f"{LEVEL_MEANING[level]}\n"]
        lines += [_row(event, e, level) for event, e in sorted(events.items()) if _highest(e) == level]
        lines.append("")
    return "\n".join(lines)


def _highest(event: Event) -> str:
    return max(event.levels, key=LEVELS.index)


def _row(event: str, e: Event, level: str) -> str:
    """One item of the list: the cells of a table would be too long."""
    lower = "".join(f" Sometimes `{other}`." for other in sorted(e.levels - {level}) if other not in MEANING[event])
    fields = ", ".join(f"`{name}`" for name in sorted(e.fields))
    named = f"**{event}** ({fields})" if fields else f"**{event}**"
    return f"- {named} {MEANING[event]}{lower}".rstrip()


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
