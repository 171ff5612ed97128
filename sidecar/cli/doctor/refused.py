"""The brokers' refusals to the sidecars themselves, by /readyz of each: credentials and rights."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from sidecar.cli.doctor.model import Check, Facts, Status, Unknown

NAME = "what brokers refuse"
WAIT = "Wait, if it has just started. What stays for minutes is told, with its remedy, in that sidecar's log."
REMEDY = re.compile(r"\. (?=[A-Z])")
"""Boundary before a problem's own remedy: its second sentence."""


def denial_text(denial: Mapping[str, Any]) -> str:
    """Returns one refusal as text, with its time and remedy. It may be of another version, which has other fields."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(denial.get("at_ms", 0) / 1000))
    text = f"{denial.get('kind')}: {denial.get('problem')} ({denial.get('times')} times, last at {at})"
    return f"{text}. {denial.get('remedy')}"


def remedies(problems: Iterable[str]) -> list[str]:
    """Returns the remedies of /readyz's problems, each once: a problem's own one, or to wait."""
    parted = [REMEDY.split(problem, maxsplit=1) for problem in problems]
    return list(dict.fromkeys(parts[1] if len(parts) > 1 else WAIT for parts in parted))


def refused(f: Facts) -> Check:
    """Checks that brokers refuse the sidecars nothing. It comes first: other checks fail as a consequence."""
    if not f.answered():
        return Check(NAME, Status.UNKNOWN, "No sidecar was asked.", "Name the admin address of each in --admin.")
    lasting = {f"sidecar {s.node_id}: {denial_text(d)}": d.get("remedy", "") for s in f.answered() for d in s.denials}
    if lasting:
        return Check(NAME, Status.FAIL, "; ".join(lasting), "; ".join(dict.fromkeys(filter(None, lasting.values()))))
    past = [f"sidecar {s.node_id}, which is over: {denial_text(s.last_denial)}" for s in f.answered() if s.last_denial]
    silent = [s for s in f.sidecars if isinstance(s, Unknown)]
    if past:
        return Check(NAME, Status.OK, "Nothing now. The last refusal: " + "; ".join(past))
    return Check(
        NAME,
        Status.OK,
        f"Nothing, to {len(f.answered())} sidecars" + (f"; {len(silent)} gave no answer." if silent else "."),
    )
