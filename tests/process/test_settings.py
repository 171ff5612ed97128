from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from sidecar.core.share.config import SHARE, ShareConfig
from sidecar.core.streams.config import STREAMS, StreamsConfig
from sidecar.process.coordination import _own_settings, own_kind
from sidecar.process.parts import front_settings
from sidecar.process.section import LONGS
from sidecar.process.sections import Share, Streams
from sidecar.process.settings import Settings, SettingsError, load

GIVEN = {"listen": "127.0.0.1:9092", "broker": "127.0.0.1:19092", "node_id": 1}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [n for n in os.environ if n.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)


def faults(config: Path | None = None, **given: object) -> list[str]:
    with pytest.raises(SettingsError) as exc:
        load(config, {**GIVEN, **given})
    return str(exc.value).splitlines()


def test_three_options_are_enough() -> None:
    s = load(None, GIVEN)
    assert s.groups.include == () and s.consumer.session_timeout_ms == 45_000
    assert s.own_bootstrap() == [("127.0.0.1", 19092)]


def test_defaults_are_kafkas_and_those_of_the_kips() -> None:
    """docs/reference/behaviour.md; KIP-1263 'Assignment Batching', 'Assignment Offload'."""
    s = load(None, GIVEN)
    c = s.consumer
    assert (c.min_assignment_interval_ms, c.assignment_interval_ms, c.max_assignment_interval_ms) == (0, 1_000, 15_000)
    assert c.max_assignment_interval_ms == c.max_heartbeat_interval_ms
    assert c.assignor_offload_enable and s.background_threads == 2
    assert (c.min_session_timeout_ms, c.session_timeout_ms, c.max_session_timeout_ms) == (45_000, 45_000, 60_000)
    assert (c.min_heartbeat_interval_ms, c.heartbeat_interval_ms) == (5_000, 5_000)
    assert c.max_size == 2**31 - 1 and c.assignors == ("uniform", "range") and c.regex_refresh_interval_ms == 600_000


def test_all_faults_at_once() -> None:
    found = faults(listen="nowhere", broker="x:0", node_id=-1)
    assert len(found) == 3
    assert any("listen" in f for f in found) and any("node_id" in f for f in found)


def test_environment_wins_over_the_file_and_the_command_line_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("node_id: 7\ngroups:\n  include: ['a.*']\nconsumer:\n  max_size: 5\n")
    monkeypatch.setenv("SIDECAR_CONSUMER__MAX_SIZE", "9")
    s = load(file, GIVEN)
    assert (s.node_id, s.groups.include, s.consumer.max_size) == (1, ("a.*",), 9)


def test_unknown_keys_are_refused_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("listn: a:1\nconsumer: {sesion: 1}\n")
    monkeypatch.setenv("SIDECAR_GRUOPS", "x")
    monkeypatch.setenv("SIDECAR_STATE__TOPIK", "x")
    found = "\n".join(faults(file))
    for word in ("listn", "consumer.sesion", "SIDECAR_GRUOPS", "SIDECAR_STATE__TOPIK"):
        assert word in found


def test_ranges_are_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_CONSUMER__SESSION_TIMEOUT_MS", "1000")
    (found,) = faults()
    assert "session_timeout_ms 1000 is not in [min_session_timeout_ms 45000" in found


def test_share_groups_are_the_brokers_unless_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not front_settings(load(None, GIVEN), lambda: "").share
    monkeypatch.setenv("SIDECAR_GROUPS__KINDS", '["classic", "consumer", "share"]')
    assert front_settings(load(None, GIVEN), lambda: "").share
    monkeypatch.setenv("SIDECAR_GROUPS__KINDS", '["share"]')
    assert "classic and consumer cannot be left out" in faults()[0]
    monkeypatch.setenv("SIDECAR_GROUPS__KINDS", '["classic", "consumer", "lasting"]')
    assert "groups.kinds" in faults()[0]


def test_so_are_streams_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    s = load(None, GIVEN)
    assert not front_settings(s, lambda: "").streams and STREAMS not in _own_settings(s).kinds
    monkeypatch.setenv("SIDECAR_GROUPS__KINDS", '["classic", "consumer", "streams"]')
    monkeypatch.setenv("SIDECAR_STREAMS__NUM_STANDBY_REPLICAS", "1")
    s = load(None, GIVEN)
    assert front_settings(s, lambda: "").streams
    own = _own_settings(s).kinds[STREAMS]
    assert (own.values["num_standby_replicas"], own.defaults["num_standby_replicas"]) == (1, 0)
    monkeypatch.setenv("SIDECAR_STREAMS__NUM_STANDBY_REPLICAS", "3")
    monkeypatch.setenv("SIDECAR_STREAMS__SESSION_TIMEOUT_MS", "5000")
    assert faults() == [
        "streams: session_timeout_ms 5000 is not in [min_session_timeout_ms 45000, max_session_timeout_ms "
        "60000]; session_timeout_ms must be greater than heartbeat_interval_ms"
    ]
    monkeypatch.delenv("SIDECAR_STREAMS__SESSION_TIMEOUT_MS")
    assert faults() == ["streams: num_standby_replicas 3 is greater than max_standby_replicas 2"]


def test_a_heartbeat_comes_before_what_it_keeps_up_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a sidecar that lost its lease before each heartbeat was no fault of the settings."""
    monkeypatch.setenv("SIDECAR_OWNERSHIP__HEARTBEAT_MS", "6000")
    monkeypatch.setenv("SIDECAR_OWNERSHIP__PROOF_MS", "5000")
    assert faults() == [
        "ownership: session_timeout_ms 6000 must be greater than heartbeat_ms; "
        "proof_ms 5000 must be greater than heartbeat_ms"
    ]
    monkeypatch.setenv("SIDECAR_OWNERSHIP__HEARTBEAT_MS", "4999")
    assert load(None, GIVEN).ownership.heartbeat_ms == 4_999


def test_the_section_of_streams_groups_has_the_defaults_of_the_core() -> None:
    """The section has every setting of the core but the name of a group's own assignor."""
    own = own_kind(Streams.model_validate({})).values
    known = {f.name: getattr(StreamsConfig(), f.name) for f in fields(StreamsConfig)}
    assert {name: own[name] for name in own if name in known} == {
        n: v for n, v in known.items() if n != "assignor_name"
    }


def test_share_groups_have_settings_where_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SHARE not in _own_settings(load(None, GIVEN)).kinds
    monkeypatch.setenv("SIDECAR_GROUPS__KINDS", '["classic", "consumer", "share"]')
    monkeypatch.setenv("SIDECAR_SHARE__ASSIGNMENT_INTERVAL_MS", "0")
    own = _own_settings(load(None, GIVEN)).kinds[SHARE]
    assert (own.values["assignment_interval_ms"], own.defaults["assignment_interval_ms"]) == (0, 1_000)
    monkeypatch.setenv("SIDECAR_SHARE__MAX_SIZE", "1001")
    assert "share.max_size" in faults()[0]


def test_the_section_of_share_groups_has_the_defaults_of_the_core() -> None:
    own = own_kind(Share.model_validate({})).values
    known = {f.name: getattr(ShareConfig(), f.name) for f in fields(ShareConfig)}
    assert {name: own[name] for name in own if name in known} == known


def of_file(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    return faults(file)


def test_the_setting_that_was_meant_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_file(tmp_path, "{bootstraps: x, groups: {includes: []}, session.timeouts: 1, heartbeat_ms: 1}") == [
        "groups.includes: unknown setting; did you mean `groups.include`?",
        "bootstraps: unknown setting; did you mean `bootstrap`?",
        "session.timeouts: unknown setting",
        "heartbeat_ms: unknown setting; did you mean `ownership.heartbeat_ms`?",
    ]
    for name in ("GRUOPS__INCLUDE", "STATE__TOPIK", "NODE_ID__X", "UNLIKE"):
        monkeypatch.setenv(f"SIDECAR_{name}", "1")
    assert faults() == [
        "SIDECAR_GRUOPS__INCLUDE: unknown setting in the environment; did you mean `SIDECAR_GROUPS__INCLUDE`?",
        "SIDECAR_STATE__TOPIK: unknown setting in the environment; did you mean `SIDECAR_STATE__TOPIC`?",
        "SIDECAR_NODE_ID__X: unknown setting in the environment",
        "SIDECAR_UNLIKE: unknown setting in the environment",
    ]


def test_a_list_is_asked_for_in_the_form_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_file(tmp_path, "groups: {include: orders.*}") == [
        'groups.include: a list is needed, as ["orders.*"]',
    ]
    assert of_file(tmp_path, "groups: orders.*") == ["groups: it is a section, with settings of its own below it"]
    monkeypatch.setenv("SIDECAR_GROUPS__INCLUDE", "[orders.*, 'a{1,2}']")
    monkeypatch.setenv("SIDECAR_STATE", "x")
    monkeypatch.setenv("SIDECAR_DRAIN_MS", "x")
    assert faults() == [
        """SIDECAR_GROUPS__INCLUDE: a list in JSON is needed, as SIDECAR_GROUPS__INCLUDE='["orders.*", "a{1,2}"]'""",
        "SIDECAR_STATE: it is a section: set its settings one by one, as SIDECAR_STATE__NAME, or all of them as JSON",
        "drain_ms: 'x' is not a whole number of milliseconds, as 3000",
    ]


@pytest.mark.parametrize("given", ["null", "[]", '"x"', "[" * 100_000])
def test_a_section_in_the_environment_that_is_none_is_a_fault(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: SIDECAR_GROUPS=null dropped SIDECAR_GROUPS__INCLUDE, and no group was managed."""
    monkeypatch.setenv("SIDECAR_GROUPS__INCLUDE", '["orders.*"]')
    monkeypatch.setenv("SIDECAR_GROUPS", given)
    (fault,) = faults()
    assert fault.startswith("SIDECAR_GROUPS: it is a section: set its settings one by one")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("drain_ms: 3s", "drain_ms: '3s' is not a whole number of milliseconds, as 3000"),
        ("state: {min_compaction_lag_ms: 7d}", "milliseconds, as 604800000"),
        ("state: {max_message_bytes: 100MB}", "'100MB' is not a whole number of bytes, as 104857600"),
        ("limits: {held_bytes: 2 GiB}", "bytes, as 2147483648"),
        ("admin_access: {session_s: 2h}", "a whole number of seconds, as 7200"),
        ("admin_access: {session_s: some}", "a whole number of seconds, as 60"),
        ("drain_ms: 1.5", "drain_ms: 1.5 is not a whole number of milliseconds, as 3000"),
        ("node_id: one", "node_id: 'one' is not a whole number"),
        ("state: {fence_spread: half}", "'half' is not a number"),
        ("state: {topic: state/groups}", "state.topic: 'state/groups' is no topic's name: 1 to 249"),
        ("state: {max_message_bytes: 2147483648}", "less than or equal to 2147483647"),
        ("ownership: {peer_ping_ms: 700}", "ownership: peer_silence_ms 1200 must be at least two times peer_ping_ms"),
        ("log: {level: verbose}", "log.level: 'verbose' is not one of debug, info, warning, error"),
    ],
)
def test_a_value_that_is_none_is_told_with_what_is_asked_for(tmp_path: Path, given: str, told: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(given)
    with pytest.raises(SettingsError) as exc:
        load(file, {k: v for k, v in GIVEN.items() if k not in given})
    assert told in str(exc.value) and len(str(exc.value).splitlines()) == 1


def numbers(model: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of each setting that is a number, is not counted in bytes, and is no long in Kafka."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from numbers(field.annotation, (*path, name))
        elif field.annotation in (int, int | None) and not name.endswith("_bytes") and name not in LONGS:
            yield (*path, name)


@pytest.mark.parametrize("path", [*numbers(Settings)], ids=".".join)
def test_no_number_is_more_than_kafkas_integers(monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]) -> None:
    """Symptom: `config check` found no fault, and the coordinator ended at its first JoinGroup: the session timeout
    had no room in it."""
    monkeypatch.setenv("SIDECAR_" + "__".join(path).upper(), str(2**31))
    with pytest.raises(SettingsError) as exc:
        load(None, {k: v for k, v in GIVEN.items() if (k,) != path})
    (fault,) = str(exc.value).splitlines()
    assert fault.startswith(".".join(path))


@pytest.mark.parametrize("name", ["state.min_compaction_lag_ms", "limits.idle_ms", "offsets.empty_group_check_ms"])
def test_kafkas_longs_may_be_months(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    section, _, of = name.partition(".")
    assert of in LONGS
    monkeypatch.setenv(f"SIDECAR_{name.replace('.', '__').upper()}", str(90 * 86_400_000))
    assert getattr(getattr(load(None, GIVEN), section), of) == 90 * 86_400_000


@pytest.mark.parametrize("host", ["a..b", "a" * 64, "."])
@pytest.mark.parametrize("name", ["broker", "listen", "bootstrap", "admin"])
def test_an_address_has_a_host_that_can_be_looked_up(name: str, host: str) -> None:
    assert faults(None, **{name: f"{host}:9092"}) == [
        f"{name}: '{host}:9092' has no name of a host: a part of it is empty, or too long"
    ]


def test_connections_are_counted_by_addresses_and_not_by_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the name of a host, which Kafka's setting takes, was accepted and counted for no client. So was an
    address of IPv6 in another spelling than that of sockets."""
    monkeypatch.setenv("SIDECAR_LIMITS__CONNECTIONS_PER_IP_OVERRIDES", '{"proxy.example.com": 7}')
    (found,) = faults()
    assert found.startswith("limits.connections_per_ip_overrides: 'proxy.example.com' does not appear to be an IPv4")
    assert found.endswith("write the address of a host, not its name")
    monkeypatch.setenv("SIDECAR_LIMITS__CONNECTIONS_PER_IP_OVERRIDES", '{"10.0.0.7": 3, "2001:DB8::0001": 5}')
    door = front_settings(load(None, GIVEN), lambda: "id").door
    assert door.per_ip_overrides == {"10.0.0.7": 3, "2001:db8::1": 5}


def test_a_bad_expression_is_told_in_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SIDECAR_GROUPS__INCLUDE", '["("]')
    assert faults() == ["groups.include: '(' is no regular expression: missing ): ("]
    assert capfd.readouterr().err == ""  # RE2 would write there


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("SIDECAR_GROUPS__INCLUDE", "not json")
    before = dict(os.environ)
    assert faults() and dict(os.environ) == before


def test_every_setting_says_what_it_is() -> None:
    bare: list[str] = []

    def walk(model: type[BaseModel], path: str) -> None:
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                walk(kind, f"{path}{name}.")
            elif not field.description and not name.startswith(("min_", "max_")):
                bare.append(path + name)

    walk(Settings, "")
    assert bare == []
