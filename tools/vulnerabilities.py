"""Ask whether a locked dependency has a known vulnerability: pip-audit, with an answer that cannot be taken for a better one.

pip-audit ends with 0 when its service knew none of the packages: then nothing was looked up, and nothing was passed. Here
that is an exit code of its own. The first service that answers for every package counts.

Exit codes: 0 every package was looked up and none has a known vulnerability, 1 at least one has, 3 not looked up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements/audit.lock", "requirements/build.lock")
"""Locks that the images are built of. audit.lock has all of sidecar.lock, and dev.lock is in no image."""
SERVICES = ("pypi", "osv")
TIMEOUT_S = 300
CLEAN, VULNERABLE, NOT_LOOKED_UP = 0, 1, 3


def ask(lock: Path, service: str, program: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Returns the service's answer for each package; and the reason, if it did not answer."""
    options = ["--requirement", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner=off"]
    command = [*program, *options, "--format=json", f"--vulnerability-service={service}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [], f"no answer within {TIMEOUT_S} s"
    try:
        return list(json.loads(done.stdout)["dependencies"]), ""
    except (ValueError, KeyError):
        return [], (done.stderr.strip().splitlines() or ["no answer"])[-1][:300]


def judge(packages: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Packages with a vulnerability, a line each; and those that were not looked up."""
    bad = [
        f"{d['name']} {d['version']}: {v['id']}, fixed in {', '.join(v['fix_versions']) or 'no version'}"
        for d in packages
        for v in d.get("vulns", [])
    ]
    return bad, [d["name"] for d in packages if "vulns" not in d]


def check(lock: Path, program: Sequence[str]) -> int:
    for service in SERVICES:
        packages, why = ask(lock, service, program)
        bad, unknown = judge(packages)
        for line in bad:
            print(f"VULNERABLE {line}")
        if bad:
            return VULNERABLE
        if packages and not unknown:
            print(f"{lock.name}: {len(packages)} packages were looked up at {service}, none has a known vulnerability")
            return CLEAN
        reason = (
            why
            or f"{len(unknown)} of {len(packages)} packages are not known there, as {unknown[0] if unknown else '-'}"
        )
        print(f"{lock.name}: {service} does not answer: {reason}")
    print(f"{lock.name}: NOT LOOKED UP. This check has not passed; repeat it where one of the services is reachable.")
    return NOT_LOOKED_UP


def main(program: Sequence[str] = (sys.executable, "-m", "pip_audit")) -> int:
    results = [check(ROOT / lock, program) for lock in LOCKS]
    return VULNERABLE if VULNERABLE in results else max(results)


if __name__ == "__main__":
    sys.exit(main())
