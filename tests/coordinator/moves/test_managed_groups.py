"""Rules decide from the state topic which groups are the sidecars'; fronts are informed of each change once."""

from __future__ import annotations

import pytest

from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.consumer.records import GroupRecord
from sidecar.core.vocabulary import group_config as cf
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.inprocess.embedded_sidecar import Counted, Lines


class Bench:
    """A group of the sidecars, and the rules that follow the topic."""

    def __init__(self) -> None:
        self.codec, self.lines = StateCodec(), Lines()
        self.state = StateLog(1, self.codec, self.lines, Counted())
        self.stored = StoredSettings(self.codec, self.state, self.lines)
        self.rules = Rules(OwnRules(lambda name: True), self.stored, self.lines)
        self.offset = 0
        self.group = self.codec.encode(GroupRecord("g", 1, 0, "a member joined"), Stamp(1, 1), 0)
        self.apply(self.group)
        self.rules.begin()

    def apply(self, record: Encoded) -> None:
        self.state.apply(0, self.offset, decode_key(record.key), record.value)
        self.offset += 1

    def changed_rules(self) -> dict[str, bool] | None:
        """Returns the rules that fronts get now; None if they have not changed."""
        if not self.rules.dirty:
            return None
        self.rules.dirty = False
        return dict(self.rules.message().moved)

    def leaves(self) -> None:
        """The group is to go back to the broker."""
        self.apply(self.codec.config("g", cf.MANAGED, "false", 1, 0, "test"))
        assert self.rules.stored("g", cf.MANAGED)
        assert self.changed_rules() == {"g": True}, "it has records here"


def test_fronts_hear_once_that_the_last_record_is_gone() -> None:
    """Seen on real brokers: a front that did not hear it sent the group's members to a coordinator that sent them back,
    for ever."""
    b = Bench()
    b.leaves()
    b.apply(Encoded(b.group.key, None))
    assert b.changed_rules() == {"g": False}
    b.apply(Encoded(b.group.key, None))
    assert b.changed_rules() is None, "nothing is said twice"


@pytest.mark.parametrize("by", [cf.MANAGED, f"/{cf.EXCLUDE}"])
def test_a_record_that_was_under_way_makes_the_group_the_sidecars_again(by: str) -> None:
    """Symptom: while orders for other groups came, as a script gives them, the fronts never heard that this group had
    a record: its member heartbeat at the broker, and the owner kept the group. Cause: each order put off the recount
    that would have found the record."""
    b = Bench()
    b.apply(Encoded(b.group.key, None))
    group_id = "g" if by == cf.MANAGED else ""
    b.apply(b.codec.config(group_id, by, "g" if by != cf.MANAGED else "false", 1, 0, "test"))
    assert b.rules.stored(group_id, by)
    assert not b.rules.managed("g")
    b.rules.dirty = False
    b.apply(b.group)
    assert (b.changed_rules() or {})["g"] and b.rules.whereabouts("g") == "leaves"
    b.apply(b.group)
    assert b.changed_rules() is None, "nothing is said twice"


def test_a_group_that_is_wanted_again_leaves_no_more() -> None:
    b = Bench()
    b.leaves()
    b.apply(b.codec.config("g", cf.MANAGED, "true", 2, 0, "test"))
    assert b.rules.stored("g", cf.MANAGED) and b.rules.kept == [{}]
    assert b.changed_rules() == {"g": True}


def test_what_an_owner_has_found_counts_for_the_order_that_it_speaks_of() -> None:
    """Found by the simulation: an owner took `later` back in the place of the order, while another order was under way.
    That was acknowledged, and gone."""
    b = Bench()

    def stands(name: str, value: str | None, why: str = "test") -> str | None:
        b.apply(b.codec.config("g", name, value, 1, 0, why))
        b.rules.stored("g", name)
        return b.rules.overrides.get("g")

    assert stands(cf.MANAGED, "true", "first") == "true"
    verdict = b.stored.as_verdict("g", cf.LATER)
    assert stands(cf.VERDICT, verdict, "not stable") == cf.LATER and b.stored.why("g") == "not stable"
    assert b.rules.later == {"g"}
    assert stands(cf.MANAGED, "false", "second") == "false" and b.stored.why("g") == "second"
    assert not b.rules.later
    assert stands(cf.VERDICT, verdict) == "false" and stands(cf.VERDICT, None) == "false"
    assert stands(cf.VERDICT, b.stored.as_verdict("g", "false")) == "false"
    assert stands(cf.MANAGED, "true", "third") == "true", "it is ordered anew"
    assert stands(cf.MANAGED, None) is None
    assert stands(cf.VERDICT, b.stored.as_verdict("g", cf.LATER)) == cf.LATER, "of a group that the patterns name"
    assert stands(cf.VERDICT, None) is None
    assert stands(cf.MANAGED, cf.LATER) == cf.LATER, "as older sidecars say it"


def test_no_order_makes_a_group_of_the_sidecars_own_theirs_to_coordinate() -> None:
    """The owners' group would wait for itself."""
    codec, lines = StateCodec(), Lines()
    state = StateLog(1, codec, lines, Counted())
    rules = Rules(
        OwnRules(lambda name: name != "owners", never=frozenset({"owners"})), StoredSettings(codec, state, lines), lines
    )
    rules.begin()
    for offset, group_id in enumerate(("owners", "other")):
        order = codec.config(group_id, cf.MANAGED, "true", 1, 0, "test")
        state.apply(0, offset, decode_key(order.key), order.value)
        assert rules.stored(group_id, cf.MANAGED)
    assert (rules.wanted("owners"), rules.wanted("other")) == (False, True)
    assert rules.message().moved == {"owners": False, "other": True}


@pytest.mark.parametrize(
    ("former", "now", "says"),
    [
        ("app-[^p].*", "app-^p.*", "without its brackets"),
        ("app-[ab]", "app-ab", "without its brackets"),
        ("", "app-^p.*", "matches no name"),
        ("app-.*", "app-[^p].*", ""),
        ("app-^p.*", "app-[^p].*", ""),
    ],
)
def test_what_kafka_configs_makes_of_brackets_is_noticed(former: str, now: str, says: str) -> None:
    b = Bench()
    for value in filter(None, (former, now)):
        b.lines.lines.clear()
        b.apply(b.codec.config("", f"/{cf.INCLUDE}", value, 1, 0, "test"))
        assert b.rules.stored("", f"/{cf.INCLUDE}")
    told = [fields["problem"] for _, event, fields in b.lines.lines if event == "stored pattern is doubtful"]
    assert [says in text for text in told] == ([True] if says else [])


def test_at_the_start_only_what_counts_now_is_said() -> None:
    """Symptom: after each restart every pattern that was ever stored was a warning again."""
    b = Bench()
    b.rules = Rules(OwnRules(lambda name: True, ("app-[^p].*",)), b.stored, b.lines)
    for value in ("old", "older", "app-^p.*"):
        b.apply(b.codec.config("", f"/{cf.INCLUDE}", value, 1, 0, "test"))
        assert b.rules.stored("", f"/{cf.INCLUDE}")
    assert b.lines.events("warning") == []
    b.rules.begin()
    assert b.lines.events("warning") == ["stored patterns count, not the sidecar's own", "stored pattern is doubtful"]
    assert b.lines.fields("stored patterns count, not the sidecar's own")["include"] == ("app-^p.*",)
