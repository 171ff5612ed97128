"""Writes docs/reference/settings.md from the settings. `python -m tools.settings_table`, from the repository's root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sidecar.process.about import settings_known

PAGE = Path("docs/reference/settings.md")
HEAD = """# Settings

Made by `python -m tools.settings_table` from the code, as `sidecar config settings` prints them. [operations.md](../operate/operations.md#settings) says how to set
them, what the brokers' own settings change, and what a client sees at a limit. A name in the environment is `SIDECAR_` and the name in capitals, with `__` for
the dot: `SIDECAR_GROUPS__INCLUDE='["orders.*"]'`. A name that begins with a dot is there in each section that the heading names. A setting without `=` is unset or empty by default.
"""
KINDS = ("consumer", "share", "streams")
NO_LIMIT = 2_147_483_647
LARGEST_FIRST = {
    "_ms": ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")),
    "_s": ((3_600, "h"), (60, "min")),
    "_bytes": ((1 << 20, "MiB"), (1 << 10, "KiB")),
}


def main() -> None:
    PAGE.write_text(page())


def page() -> str:
    sections: dict[str, list[dict[str, Any]]] = {}
    for row in settings_known():
        section, dot, _ = row["setting"].partition(".")
        sections.setdefault(section if dot else "", []).append(row)
    parts = [HEAD]
    for section, rows in _with_shared(sections).items():
        parts += [f"## {section or 'The process'}\n", _list(rows)]
    return "\n".join(parts)


def _with_shared(sections: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """A section more, for what those of KINDS say with the same words and default."""
    same = set.intersection(*({_without_section(row) for row in sections[kind]} for kind in KINDS))
    shared = [
        row | {"setting": _without_section(row)[0]} for row in sections[KINDS[0]] if _without_section(row) in same
    ]
    result: dict[str, list[dict[str, Any]]] = {}
    for section, rows in sections.items():
        if section == KINDS[0]:
            result[", ".join(KINDS)] = shared
        result[section] = [row for row in rows if section not in KINDS or _without_section(row) not in same]
    return result


def _without_section(row: dict[str, Any]) -> tuple[str, str, str]:
    return "." + row["setting"].partition(".")[2], str(row["default"]), row["meaning"]


def _list(rows: list[dict[str, Any]]) -> str:
    return "".join(f"- `{r['setting']}`{_default_of(r)}: {r['meaning']}\n" for r in rows)


def _default_of(row: dict[str, Any]) -> str:
    default = default_of(row["setting"], row["default"])
    return "" if default == "-" else f" = {default}"


def default_of(name: str, value: Any) -> str:
    """As a person writes it, with the number in a larger unit beside it."""
    if value is None or value == "" or value in ([], {}):
        return "-"
    if isinstance(value, list):
        return ", ".join(f"`{v}`" for v in value)
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, bool):
        return str(value).lower()
    if value == NO_LIMIT:
        return "no limit"
    for ending, units in LARGEST_FIRST.items():
        for size, unit in units:
            if name.endswith(ending) and value >= size and value % size == 0:
                return f"{value} ({value // size} {unit})"
    return str(value)


if __name__ == "__main__":
    main()
