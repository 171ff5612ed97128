"""The check of the certificates that the sidecars show to clients."""

from __future__ import annotations

import time

from sidecar.cli.doctor.model import Check, Facts, Status
from sidecar.front.certificates import SOON_S

ASKED = "Name the admin address of each sidecar: --admin HOST:PORT, once for each."


def certificates(f: Facts) -> Check:
    name = "certificates"
    sidecars = f.answered()
    if not sidecars:
        return Check(name, Status.UNKNOWN, "No sidecar was asked.", ASKED)
    ends = {s.node_id: s.certificate_ends_ms / 1000 for s in sidecars if s.certificate_ends_ms}
    if not ends:
        return Check(name, Status.OK, "No sidecar that was asked has TLS.")
    dates = ", ".join(f"sidecar {n} until {_date(at_s)}" for n, at_s in ends.items())
    left_s = min(ends.values()) - time.time()
    if left_s <= 0:
        remedy = "Put a new certificate in the place of the old one (tls.certificate): it is read again by itself."
        return Check(name, Status.FAIL, f"A certificate has expired, and clients refuse it: {dates}.", remedy)
    if left_s < SOON_S:
        return Check(name, Status.WARN, f"A certificate expires soon: {dates}.", "Renew it in time.")
    return Check(name, Status.OK, f"They are good: {dates}.")


def _date(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
