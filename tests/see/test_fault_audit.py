"""Faults of a real audit, and the alerts that they raise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.state.codec import Encoded
from tests.audit.lake.topics import Topics
from tests.see.auditing import COPY, WEEK_MS, Audit
from tests.see.ground import AUDIT, Ground, foreign

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]


@pytest.fixture(scope="module")
def audit(ground: Ground, starting_audit: Audit) -> Iterator[Audit]:
    starting_audit.watched()
    yield starting_audit
    ground.prometheus.scrape(AUDIT)


def test_the_audit_is_too_slow_for_the_compaction(ground: Ground, audit: Audit) -> None:
    with ground.fault("soon compacted", "AuditFallsBehind") as fault:
        ground.alter(COPY, "min.compaction.lag.ms", "100")
        fault.until_firing()
        ground.alter(COPY, "min.compaction.lag.ms", str(WEEK_MS))


def test_records_go_before_they_are_read(ground: Ground, audit: Audit) -> None:
    """While the lake cannot be written: somebody has put a file in its place. The audit tries again and again."""
    with ground.fault("no lake", "AuditFails") as fault:
        audit.lake.rename(audit.away)
        audit.lake.touch()
        fault.until_firing()
        more = [Encoded(b"no key", b"no value")] * 5
        ground.write({0: more}, COPY)
        Topics(ground.kafka.internal).forget(COPY, 0, audit.copied[0] + len(more))
        audit.lake.unlink()
        lost = ground.lasting_fault("lost", "AuditLostRecords")
        audit.away.rename(audit.lake)
        lost.until_firing()


def test_a_record_is_of_somebody_who_is_not_the_owner(ground: Ground, audit: Audit) -> None:
    found = ground.lasting_fault("finding", "AuditFindings")
    ground.write(foreign("managed-copied"), COPY)
    found.until_firing()


def test_the_audit_dies(ground: Ground, audit: Audit) -> None:
    """The findings that the audit has reported go with it."""
    with ground.fault("no audit", "AuditFails") as fault:
        audit.process.kill()
        fault.until_firing()
        for lasting in (f for f in ground.faults if f.name in ("lost", "finding")):
            ground.wait_for_end(lasting)
        ground.prometheus.scrape(AUDIT)
