"""Moments as users write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
YEAR_2000_MS, YEAR_2100_MS = 946_684_800_000, 4_102_444_800_000
"""Bounds of Unix ms: a number beyond them is a date without its dashes, such as 20261123103200."""
LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999. Later times become this one, because readers cannot show them."""
FOR_EVER_MS = 1 << 52
"""A time after all records."""
EXAMPLES = "2026-11-23T08:15, 2026-11-23 08:15:30.5+01:00, 1795420800000 (Unix ms), or 15m, 2h, 3d (so long ago)"


def moment(text: str, now_ms: int) -> int:
    """Returns Unix ms of a moment; without a zone it is UTC. Raises ValueError with examples of valid forms."""
    text = text.strip()
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    if ago is not None:
        return max(now_ms - int(ago[1]) * UNITS_MS[ago[2]], 0)
    if re.fullmatch(r"\d{11,14}", text):
        if not YEAR_2000_MS <= int(text) < YEAR_2100_MS:
            raise ValueError(f"{text} is no Unix ms of the years 2000 to 2099. Write {EXAMPLES}.")
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time. Write {EXAMPLES}.") from None
    return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def shown(moment: int | datetime) -> str:
    """Returns the moment in UTC, to the millisecond, within the years 1970 to 9999: a record's time may be any number.
    `moment`: Unix ms, or a time without a zone, which is UTC."""
    ms = moment if isinstance(moment, int) else round(moment.replace(tzinfo=UTC).timestamp() * 1000)
    ms = min(max(ms, 0), LAST_MS)
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
