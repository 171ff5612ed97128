"""The page as one file: markup, style, script and data, with a content security policy that admits nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

SCRIPTS = ("data", "clock", "state", "lanes", "paint", "axis", "panels", "detail", "search", "input", "export", "main")


def _part(name: str) -> str:
    return files(__package__).joinpath("parts", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def build(view: Mapping[str, Any]) -> str:
    """Returns the HTML. Names come from clients and may be hostile: they are only in the data, where every `<` is
    escaped, and the script shows them as text. The policy admits this script and style by hash, and no request."""
    script = "'use strict';\n" + "\n".join(_part(f"{name}.js") for name in SCRIPTS)
    style = _part("page.css")
    data = json.dumps(view, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        data = data.replace(character, f"\\u{ord(character):04x}")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )
    parts = {"title": html.escape(view["title"]), "policy": policy, "style": style, "script": script, "data": data}
    return re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], _part("page.html"))
