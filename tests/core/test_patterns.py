"""Patterns of group ids, and the settings of groups at their limits."""

from __future__ import annotations

import pytest

from sidecar.core.streams.config import StreamsConfig
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.group_config import HEARTBEAT, INTERVAL, SESSION, level, validate
from sidecar.core.vocabulary.group_patterns import Patterns, beginning, doubts, never_matches, split, without_brackets

BROKER: dict[str, int | bool] = {
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 40_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.max.heartbeat.interval.ms": 50_000,
    "group.consumer.assignment.interval.ms": 1_000,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.max.assignment.interval.ms": 15_000,
    "group.consumer.assignor.offload.enable": True,
}


@pytest.mark.parametrize(
    ("group_id", "matches"),
    [
        ("orders", True),
        ("orders-1", False),
        ("my-orders", False),
        ("a.b", True),
        ("axb", True),
        ("axbc", False),
        ("a.private", False),
        ("a.privately", True),
        ("never", False),
        ("", False),
    ],
)
def test_a_pattern_matches_a_name_as_a_whole(group_id: str, matches: bool) -> None:
    patterns = Patterns(["orders", "a.b", "a[.]private(ly)?", "never"], ["a[.]private"], never={"never"})
    assert patterns(group_id) == matches


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ("a", "b")),
        (" a , ,b, ", ("a", "b")),
        ("a{1,2},b", ("a{1,2}", "b")),
        ("[,],b", ("[,]", "b")),
        (r"a\,b,c\\,d", (r"a\,b", r"c\\", "d")),
        (r"\{a,b", (r"\{a", "b")),
        ("", ()),
    ],
)
def test_commas_part_patterns_but_not_inside_of_braces(text: str, parts: tuple[str, ...]) -> None:
    assert split(text) == parts


@pytest.mark.parametrize(
    ("own", "refused"),
    [
        ({SESSION: "40000"}, ""),
        ({SESSION: "39999"}, f"{SESSION} must be in the range 40000 to 60000 inclusive."),
        ({SESSION: "60000"}, ""),
        ({SESSION: "60001"}, f"{SESSION} must be in the range 40000 to 60000 inclusive."),
        ({HEARTBEAT: "1000"}, ""),
        ({HEARTBEAT: "999"}, f"{HEARTBEAT} must be in the range 1000 to 50000 inclusive."),
        ({HEARTBEAT: "44999"}, ""),
        ({HEARTBEAT: "45000"}, f"{SESSION} must be greater than {HEARTBEAT}"),
        ({HEARTBEAT: "50000", SESSION: "50001"}, ""),
        ({INTERVAL: "-1"}, ""),
        ({INTERVAL: "0"}, ""),
        ({INTERVAL: "15001"}, f"{INTERVAL} must be in the range 0 to 15000 inclusive."),
        ({INTERVAL: "-2"}, f"Invalid value -2 for configuration {INTERVAL}: Value must be at least 0"),
        ({INTERVAL: " +1000 "}, ""),
        ({INTERVAL: "1_000"}, f"Invalid value 1_000 for configuration {INTERVAL}: Not a number of type INT"),
        ({INTERVAL: "1000.0"}, f"Invalid value 1000.0 for configuration {INTERVAL}: Not a number of type INT"),
        ({INTERVAL: "0x10"}, f"Invalid value 0x10 for configuration {INTERVAL}: Not a number of type INT"),
    ],
)
def test_settings_of_a_group_are_refused_outside_of_the_brokers_limits(own: dict[str, str], refused: str) -> None:
    if not refused:
        validate(own, BROKER)
        return
    with pytest.raises(CoordinatorError) as told:
        validate(own, BROKER)
    assert (told.value.code, told.value.message) == (Code.INVALID_CONFIG, refused)


def test_settings_that_were_within_the_limits_are_brought_into_those_of_now() -> None:
    limits = {f"group.consumer.{which}.session.timeout.ms": ms for which, ms in (("min", 45_000), ("max", 50_000))}
    narrow: dict[str, int | bool] = {**BROKER, **limits}
    for own, counts in ((40_000, 45_000), (45_000, 45_000), (47_000, 47_000), (50_000, 50_000), (60_000, 50_000)):
        assert level("consumer", {SESSION: str(own)}, narrow)["session_timeout_ms"] == counts
    assert level("consumer", {INTERVAL: "-1"}, narrow)["assignment_interval_ms"] == 1_000, "the broker's"
    assert level("consumer", {}, narrow)["session_timeout_ms"] == 45_000


BRACKETS = ["app-[^p].*", "[ab]c", "a[.]b", "(orders|load)-[0-9]+", "x[^y]"]


@pytest.mark.parametrize("pattern", BRACKETS)
def test_a_pattern_that_has_lost_its_brackets_is_noticed(pattern: str) -> None:
    """kafka-configs --add-config drops them."""
    (told,) = doubts([without_brackets(pattern)], [pattern])
    assert pattern in told
    assert not doubts([pattern], [pattern])
    assert not doubts([pattern], [without_brackets(pattern)]), "that is how it is put right"


@pytest.mark.parametrize(
    ("pattern", "never"),
    [
        ("app-^p.*", True),
        ("a$b", True),
        ("app-[^p].*", False),
        ("^app.*$", False),
        (r"a\^b", False),
        (r"a\$b", False),
        ("a|^b", False),
        ("x*^a", False),
        ("a^*", False),
        ("[$]b", False),
        ("a$", False),
    ],
)
def test_a_pattern_that_matches_no_name_is_noticed(pattern: str, never: bool) -> None:
    assert never_matches(pattern) == never
    assert bool(doubts([pattern])) == never
    if never:
        assert not any(map(Patterns([pattern], ()), ("app-^p.x", "app-p", "a$b", "ab", "a", "b", "")))


@pytest.mark.parametrize(
    ("pattern", "begins"),
    [
        ("orders", ("orders", True)),
        ("orders-.*", ("orders-", False)),
        (r"a\.b", ("a.b", True)),
        ("^app-x$", ("app-x", True)),
        ("ab?c", ("a", False)),
        ("ab*", ("a", False)),
        ("ab{2}", ("a", False)),
        ("a+", ("a", False)),
        (r"a\d", ("a", False)),
        ("[ab]c", None),
        (".*", None),
        ("a|b", None),
        ("(a)", None),
    ],
)
def test_how_the_names_begin_that_a_pattern_matches(pattern: str, begins: tuple[str, bool] | None) -> None:
    assert beginning(pattern) == begins


# ---- settings of streams groups -------------------------------------------------------------------------------------
STREAMS_BROKER = {
    **{name.replace("consumer", "streams"): value for name, value in BROKER.items()},
    "group.streams.max.standby.replicas": 2,
    "group.streams.num.standby.replicas": 1,
    "group.streams.initial.rebalance.delay.ms": 3_000,
    "group.streams.rack.aware.assignment.tags": ("zone",),
    "group.streams.assignors": ("sticky", "theirs"),
}
TAGS, NAME = "streams.rack.aware.assignment.tags", "streams.assignor.name"


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"streams.num.standby.replicas": "2", "streams.initial.rebalance.delay.ms": "0"}, None),
        ({TAGS: " a , b ", NAME: " theirs "}, None),
        ({TAGS: ""}, None),
        ({TAGS: "a,,b"}, f"Configuration '{TAGS}' values must not be empty."),
        # Kafka looks for these before it reads any other setting.
        ({"streams.session.timeout.ms": "x", TAGS: "a,a"}, f"{TAGS} must not contain duplicate tag keys."),
        *(
            ({NAME: n}, f"{NAME} '{n}' is not a registered task assignor. Registered assignors are: [sticky, theirs].")
            for n in ("nope", "")
        ),
        ({"streams.num.standby.replicas": "3"}, "streams.num.standby.replicas must be less than or equal to 2"),
        (
            {"streams.initial.rebalance.delay.ms": "-1"},
            "Invalid value -1 for configuration streams.initial.rebalance.delay.ms: Value must be at least 0",
        ),
        (
            {"streams.num.standby.replicas": "9", "streams.heartbeat.interval.ms": "1"},
            "streams.heartbeat.interval.ms must be in the range 1000 to 50000 inclusive.",
        ),
    ],
)
def test_a_streams_group_has_settings(own: dict[str, str], words: str | None) -> None:
    if words is None:
        validate(own, STREAMS_BROKER)
        return
    with pytest.raises(CoordinatorError) as refused:
        validate(own, STREAMS_BROKER)
    assert refused.value.message == words


def test_standbys_follow_what_the_broker_allows_now() -> None:
    own = {"streams.num.standby.replicas": "2"}
    assert level("streams", own, STREAMS_BROKER)["num_standby_replicas"] == 2
    assert (
        level("streams", own, {**STREAMS_BROKER, "group.streams.max.standby.replicas": 1})["num_standby_replicas"] == 1
    )
    found = StreamsConfig(assignors=("sticky",), **level("streams", {}, STREAMS_BROKER))  # type: ignore[arg-type]
    assert found == StreamsConfig(num_standby_replicas=1, rack_aware_assignment_tags=("zone",))


def test_a_streams_group_has_tags_and_an_assignor_of_its_own() -> None:
    found = level("streams", {TAGS: "a, b", NAME: "theirs"}, STREAMS_BROKER)
    assert (found["rack_aware_assignment_tags"], found["assignor_name"]) == (("a", "b"), "theirs")
    found = level("streams", {TAGS: ""}, STREAMS_BROKER)
    assert (found["rack_aware_assignment_tags"], found["assignor_name"]) == ((), "")
