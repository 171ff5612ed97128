"""A real Prometheus on this machine, with rules whose times are shortened."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sidecar.drill.processes import Process, free_ports, wait_until

LEFT_OUT = os.environ.get("SEE_WITHOUT_PROMETHEUS") == "1"
HELD, WINDOW = "2s", "15s"
"""Instead of minutes."""


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"no {name}: install Debian's package prometheus, or set SEE_WITHOUT_PROMETHEUS=1"
    return found


def hurried(rules: str) -> str:
    """The same rules, with times for a test."""
    rules = re.sub(r"\[(5m|10m|1h)\]", f"[{WINDOW}]", rules)
    return re.sub(r"^( +for:) \S+$", rf"\1 {HELD}", rules, flags=re.M)


@dataclass
class Prometheus:
    """`jobs`: name -> addresses; `how`: what all of them say beside these, as of TLS."""

    folder: Path
    jobs: dict[str, list[str]]
    rules: str
    process: Process | None = None
    port: int = field(default_factory=lambda: free_ports(1)[0])
    how: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> Prometheus:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "rules.yml").write_text(hurried(self.rules))
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": name, "static_configs": [{"targets": targets}], **self.how}
                for name, targets in self.jobs.items()
            ],
        }
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
        """Those of an instant query that are numbers."""
        asked = query.replace("$__rate_interval", WINDOW)
        found = (float(r["value"][1]) for r in self.get("query", query=asked)["result"])
        return [v for v in found if not math.isnan(v)]

    def firing(self) -> set[str]:
        return {a["labels"]["alertname"] for a in self.get("alerts")["alerts"] if a["state"] == "firing"}

    def until_firing(self, expected: Collection[str], tolerated: Collection[str] = (), timeout_s: float = 60) -> None:
        """Until all of these fire, and none beside those that are tolerated."""
        end = time.monotonic() + timeout_s
        while True:
            fires = self.firing()
            if set(expected) <= fires <= {*expected, *tolerated}:
                return
            assert time.monotonic() < end, f"{sorted(fires)} fire, and not {sorted(expected)}"
            time.sleep(0.5)
