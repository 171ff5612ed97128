"""The row of share groups in the registry: their events, timers and records."""

from __future__ import annotations

from sidecar.core.modern import registration as modern
from sidecar.core.modern.sessions import REMOVING, removing_timers
from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.administration import administered, may_administer
from sidecar.core.share.adoption import RELEASE, AdoptShare, adopt
from sidecar.core.share.assignor_run import run
from sidecar.core.share.config import SHARE as NAME
from sidecar.core.share.config import ShareConfig
from sidecar.core.share.describe import describe
from sidecar.core.share.events import (
    DescribeShareGroup,
    PlaceholderLeft,
    PlaceholderRefused,
    ShareAdmin,
    ShareAdministered,
    ShareHeartbeat,
    ShareInitialised,
)
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.heartbeat import heartbeat
from sidecar.core.share.initialised import assignor_done, initialised, refused
from sidecar.core.share.inspect import INSPECT
from sidecar.core.share.members import remove_members
from sidecar.core.share.offsets import check_commit, check_fetch
from sidecar.core.share.parked_joins import PARKED
from sidecar.core.share.placeholder import TIMER, keep_placeholder, left, look_after
from sidecar.core.share.records import RECORDS
from sidecar.core.share.soft_state import ShareSoft
from sidecar.core.share.target_assignment import TARGETS


def _loaded(turn: Turn, group: ShareGroup) -> None:
    """Arms the timers of a rebuilt group. Its first timer issues the command for the placeholder member: a load has no
    effects of its own."""
    modern.loaded(turn, group)
    turn.timers.set((TIMER, group.group_id), turn.now.mono_ms)


def _topics_changed(turn: Turn, group: ShareGroup, changed: frozenset[str]) -> None:
    modern.topics_changed(turn, group, changed)
    if not changed.isdisjoint(group.subscribed_topics()):
        keep_placeholder(turn, group)


def _answer_waiting(turn: Turn, group: ShareGroup) -> None:
    modern.answer_waiting(turn, group)
    turn.timers.cancel((TIMER, group.group_id))


SHARE = GroupKind(
    name=NAME,
    make=ShareGroup,
    soft=ShareSoft,
    config=ShareConfig,
    records=RECORDS,
    events={
        ShareHeartbeat: heartbeat,
        DescribeShareGroup: describe,
        CommitCheck: check_commit,
        FetchCheck: check_fetch,
        AssignorDone: assignor_done,
        ShareInitialised: initialised,
        PlaceholderRefused: refused,
        PlaceholderLeft: left,
        ShareAdmin: may_administer,
        ShareAdministered: administered,
        AdoptShare: adopt,
        **RELEASE.events(),
    },
    timers={**removing_timers(remove_members), **TARGETS.timers(), **PARKED.timers(), TIMER: look_after},
    removing=REMOVING,
    loaded=_loaded,
    member_loaded=modern.member_loaded,
    touched=modern.touched,
    topics_changed=_topics_changed,
    inspect=INSPECT,
    answer_waiting=_answer_waiting,
    commits=False,
    run=run,
)
