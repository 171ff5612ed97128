"""A real Prometheus on this machine, with rules whose times are shortened."""

from __future__ import annotations

import json
import math
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sidecar.drill.processes import Process, free_ports, wait_until

HELD, WINDOW = "3s", "15s"
"""Instead of minutes."""
BOUNDS = {
    "SidecarExporterStale": ("> 300", "> 8"),
    "SidecarGroupNotSettling": ("> 600", "> 5"),
    "SidecarLoopLag": ("> 0.1", "> 0.4"),
}
"""Bounds of alerts that look at a time of their own: as it is, and for a test. The loop of a sidecar may be held up
longer here, where brokers, sidecars and Prometheus share two processors; its fault holds it up longer still."""


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"no {name}: install Debian's package prometheus"
    return found


def hurried(rules: str) -> str:
    """The same rules, with times for a test."""
    found = yaml.safe_load(rules)
    for rule in (r for group in found["groups"] for r in group["rules"]):
        was, then = BOUNDS.get(rule.get("alert", ""), ("", ""))
        assert was in rule["expr"], (rule["alert"], was)
        bounded = rule["expr"].replace(was, then) if was else rule["expr"]
        rule["expr"] = re.sub(r"\[(2m|5m|10m|1h)\]", f"[{WINDOW}]", bounded)
        if "for" in rule:
            rule["for"] = HELD
    return yaml.safe_dump(found, sort_keys=False)


@dataclass
class Prometheus:
    """`jobs`: name -> addresses; `how`: what all of them say beside these, as of TLS; `labels`: of all targets."""

    folder: Path
    jobs: dict[str, list[str]]
    rules: str
    process: Process | None = None
    port: int = field(default_factory=lambda: free_ports(1)[0])
    how: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Prometheus:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.yml").write_text(hurried(self.rules))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": name, "file_sd_configs": [{"files": [f"targets-{name}.json"]}], **self.how}
                for name in self.jobs
            ],
        }
        for name in self.jobs:
            self.scrape(name)
        (self.folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            program("prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.process = Process("prometheus", command, self.folder / "prometheus.log").start()
        wait_until("Prometheus", self._answers, 30, [self.process])
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process is not None:
            self.process.stop()

    def scrape(self, job: str, more: Collection[str] = ()) -> None:
        """Adds addresses to a job."""
        targets = [{"targets": [*self.jobs[job], *more], "labels": self.labels}]
        new = self.folder / f"targets-{job}.json.new"
        new.write_text(json.dumps(targets))
        new.rename(new.with_suffix(""))

    def _answers(self) -> bool:
        try:
            return bool(self.get("query", query="vector(1)"))
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str, **given: str) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(url, timeout=10) as res:
            told = json.load(res)
        assert told["status"] == "success", told
        return told["data"]

    def values(self, query: str) -> list[float]:
        """Returns the values of an instant query that are numbers."""
        asked = query.replace("$__rate_interval", WINDOW)
        found = (float(r["value"][1]) for r in self.get("query", query=asked)["result"])
        return [v for v in found if not math.isnan(v)]

    def firing(self) -> set[str]:
        return {a["labels"]["alertname"] for a in self.get("alerts")["alerts"] if a["state"] == "firing"}

    def fired(self, since_s: float, until_s: float) -> list[tuple[str, float]]:
        """Every alert at every second of this time at which it fired, by the record that Prometheus keeps."""
        asked = {"query": 'ALERTS{alertstate="firing"}', "start": str(since_s), "end": str(until_s), "step": "1"}
        found = self.get("query_range", **asked)["result"]
        return [(r["metric"]["alertname"], float(at)) for r in found for at, _ in r["values"]]

    def series(self, metric: str) -> list[dict[str, str]]:
        """The labels of all series that there have been of this metric."""
        found: list[dict[str, str]] = self.get("series", **{"match[]": metric, "start": "0"})
        return found
