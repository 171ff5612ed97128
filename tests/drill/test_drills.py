"""Drills work on real processes: short ones, a round each. And their judge is no yes-man: faults that are planted into
the journals of the very run that it has just passed are found."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.drill.artifacts import KAFKA
from sidecar.drill.clients import Owned
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.group_under_test import KINDS
from sidecar.drill.drills.judge import Verdict, commits_now, judge_group
from sidecar.drill.drills.measure import FIGURES
from sidecar.drill.drills.playing import STAGES, chosen
from sidecar.drill.drills.run import play
from sidecar.drill.drills.spec import Drill
from sidecar.drill.drills.upgrade import has_history
from sidecar.drill.processes import DrillError
from sidecar.kafka.properties import read

pytestmark = [pytest.mark.tier("all"), pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    made = Ground(STAGES["plain"](tmp_path_factory.mktemp("drills"), KAFKA), print)
    try:
        made.start_cluster()
        yield made
    finally:
        made.abandon()
        made.kafka.stop()


def only(name: str, **options: object) -> Drill:
    (drill,) = chosen([name], options)
    return drill


def on_its_own(drill: Drill, folder: Path) -> None:
    made = Ground(STAGES[drill.stage](folder, KAFKA), print)
    try:
        drill.start(made)
        played(drill, made)
    finally:
        made.abandon()
        made.kafka.stop()


def played(drill: Drill, ground: Ground) -> None:
    result = play(drill, ground, 1, "-".join([drill.name, *drill.options]), print)
    assert result.ok, (result.problem, result.verdict, result.findings)
    told = result.json()
    assert told["n"] == 1 and set(told["seconds"]) == {f"sidecar {kind}" for kind in drill.kinds or KINDS}
    for figures in told["seconds"].values():
        assert list(figures) == [name for name in FIGURES if name != "joins"]  # that is for bystanders
        assert 0 < figures["first commit"]["p50"] < drill.patience_s


def test_the_owner_is_killed_and_the_judge_finds_what_is_planted_afterwards(ground: Ground) -> None:
    played(only("kill-owner"), ground)
    ends = dict(ground.under_test[0].best())
    for c in ground.under_test:
        java, py = (client.journal for client in c.clients)
        assert c.consumed_all(ends) and java.count and py.count, "both clients took part"
        judge_group(c, ends, passed := Verdict())
        assert passed.ok
        p, end = next(iter(ends.items()))
        py.commit_log.append((10**15, p, end + 1))
        java.owned += [Owned(java.name, p, 0), Owned(py.name, p, 1)]
        judge_group(c, {**ends, p: end + 1}, planted := Verdict())
        assert planted.lost_records == 1 and planted.double_owned > 0
    lost = commits_now(ground)
    assert {len(lines) for lines in lost.values()} == {1}, lost


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", ["kill-worker", "upgrade-worker"])
def test_a_worker_of_the_owner_is_replaced(ground: Ground, name: str) -> None:
    played(only(name), ground)


@pytest.mark.tier("nightly")
def test_the_owner_is_stopped(ground: Ground) -> None:
    played(only("stop"), ground)


if has_history():

    @pytest.mark.tier("nightly")
    def test_sidecars_of_before_the_last_new_schema_are_upgraded(ground: Ground) -> None:
        played(only("rolling-upgrade"), ground)


@pytest.mark.tier("nightly")
def test_the_state_topic_is_restored_from_a_dump(ground: Ground) -> None:
    played(only("restore"), ground)


@pytest.mark.tier("nightly")
def test_it_is_restored_from_a_dump_that_is_older(ground: Ground) -> None:
    played(only("restore", older=True), ground)


@pytest.mark.tier("nightly")
def test_a_version_with_newer_records_is_rolled_back(ground: Ground) -> None:
    played(only("rollback"), ground)


@pytest.mark.tier("nightly")
def test_a_broker_is_taken_out_and_another_one_has_its_id(ground: Ground) -> None:
    played(only("remove-broker"), ground)


@pytest.mark.tier("nightly")
@pytest.mark.timeout(700)
def test_sidecars_are_rolled_out_and_taken_out(tmp_path: Path) -> None:
    on_its_own(only("take-out", stay=True), tmp_path)


def test_a_drill_whose_groups_do_not_come_back_fails_and_says_so(ground: Ground) -> None:
    drill = only("kill-owner")
    drill.patience_s = 0.0
    result = play(drill, ground, 1, "impatient", print)
    assert not result.ok and "served again: not within 0 s" in result.problem
    with pytest.raises(DrillError, match="ended"):
        ground.wait("anything", lambda: False, 1)


@pytest.mark.tier("nightly")
def test_the_owner_is_cut_off(tmp_path: Path) -> None:
    drill = only("cut-sidecar")
    drill.holds_s = 10.0
    on_its_own(drill, tmp_path)


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", ["kill-share-owner", "kill-streams-owner"])
def test_the_owner_of_a_share_or_streams_group_is_killed(name: str, tmp_path: Path) -> None:
    on_its_own(only(name), tmp_path)


# ---- on a secured cluster
@pytest.mark.tier("nightly")
def test_a_drill_on_a_secured_cluster(tmp_path: Path) -> None:
    """As it is given by hand. Brokers, sidecars, clients and the audit know each other by SASL_SSL only, and nothing
    that any of them has written tells the password or the key."""
    words = ["drill", "kill-owner", "--n", "1", "--security", "sasl_ssl", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "sidecar.cli.main", *words], capture_output=True, text=True, timeout=390, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.glob("kill-owner-*/plain-1")
    own = read(folder / "client.properties")
    key = (folder / "key-and-certificate.pem").read_text().splitlines()[1]
    ports = re.findall(r"INTERNAL://127\.0\.0\.1:\d+", (folder / "broker-1.properties").read_text())
    assert ports and own.protocol == "SASL_SSL" and len(own.password) > 20
    private = [path for path in folder.iterdir() if path.suffix in (".properties", ".pem") and "log4j" not in path.name]
    assert {path.stat().st_mode & 0o077 for path in private} == {0}
    said = [path for path in folder.iterdir() if path.suffix in (".log", ".events")]
    assert {"broker-1.log", "sidecar-1.log", "kill-owner-producer.log"} <= {path.name for path in said}
    told = {"stdout": done.stdout, "stderr": done.stderr, **{path.name: path.read_text() for path in said}}
    assert [name for name, text in told.items() if own.password in text or key in text] == []


def test_a_drill_that_cuts_lines_cannot_be_played_on_a_secured_cluster() -> None:
    words = ["drill", "kill-owner", "cut-broker", "--security", "sasl_ssl"]
    done = subprocess.run(
        [sys.executable, "-m", "sidecar.cli.main", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "There is no --security sasl_ssl for cut-broker." in done.stderr
