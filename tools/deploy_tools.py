"""helm, kubeconform and a loader of compose files, built once by Go from its module proxy into the cache folder, and the
manifests that helm makes.

    python -m tools.deploy_tools build        build them, if they are not there yet; `make test` does it first
    python -m tools.deploy_tools manifests    write deploy/kubernetes/*.yaml anew from the chart

A tool that is installed is not used: versions are pinned, so that everybody renders the same text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from sidecar.drill.artifacts import cache_dir

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "kafka-group-sidecar"
HELM, KUBECONFORM, COMPOSE = "helm", "kubeconform", "compose"
MODULES = {
    HELM: ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    KUBECONFORM: ("github.com/yannh/kubeconform/cmd/kubeconform", "v0.8.0"),
}
SOURCE = ROOT / "tests" / "deploy" / "compose"
"""A program around the library with which docker compose reads its files; go.mod and go.sum pin that."""
MANIFESTS = {
    "deploy/kubernetes/cluster.yaml": ("kafka", "deploy/kubernetes/values.yaml"),
    "deploy/kubernetes/strimzi/sidecars.yaml": ("sidecars", "deploy/kubernetes/strimzi/values.yaml"),
}
"""File -> release and values; all are for the namespace kafka."""
HEAD = """# Made by `python -m tools.deploy_tools manifests` from the Helm chart with {values}: change these, not this.
#   kubectl create namespace kafka && kubectl -n kafka apply -f {name}
# The image is in no registry. In a checkout, before that:
#   docker build -t REGISTRY/kafka-group-sidecar:{version} . && docker push REGISTRY/kafka-group-sidecar:{version}
#   sed -i 's|"kafka-group-sidecar:|"REGISTRY/kafka-group-sidecar:|' {name}
# With kind, instead: docker build -t kafka-group-sidecar:{version} . && kind load docker-image kafka-group-sidecar:{version}
"""
KUBERNETES = "1.29.0"
"""A helm that go builds does not know for which version of Kubernetes it is to render."""


class ToolError(Exception):
    """Says what is missing and how to get it."""


def place(name: str) -> Path:
    """Returns the path of the program of this version, whether or not it is there yet."""
    if name == COMPOSE:
        version = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCE.iterdir()))).hexdigest()[:12]
    else:
        version = MODULES[name][1]
    return cache_dir() / "go-tools" / f"{name}-{version}"


def tool(name: str) -> Path:
    """The program, built if it is not there yet: with two cores that takes minutes for helm. Raises ToolError."""
    path = place(name)
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None:
        raise ToolError(f"{name} is built by Go, which is not installed: install Go 1.26 or later")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        env = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        command = ["nice", go, "install", "-trimpath", "-ldflags=-s -w"]
        command.append("." if name == COMPOSE else "@".join(MODULES[name]))
        cwd = SOURCE if name == COMPOSE else None
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=cwd)
        if done.returncode != 0:
            raise ToolError(f"{path.name} could not be built:\n{done.stderr[-2000:]}")
        os.replace(Path(folder, name), path)
    return path


def load_compose(file: Path) -> dict[str, Any]:
    """The file as docker compose understands it, with no variables but those that it has defaults for. Raises ToolError."""
    done = subprocess.run([str(tool(COMPOSE)), str(file)], env={}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolError(done.stderr)
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm with a home of its own, so that it neither sees nor leaves anything."""
    with tempfile.TemporaryDirectory() as home:
        homes = {f"HELM_{kind}_HOME": f"{home}/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")}
        env = {**os.environ, **homes, "KUBECONFIG": f"{home}/none"}
        command = [str(tool(HELM)), *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def template(release: str, options: Sequence[str] = (), chart: Path = CHART) -> str:
    """Returns what helm renders from the chart in the namespace kafka. Raises ToolError with helm's message."""
    where = ("--namespace", "kafka", "--kube-version", KUBERNETES)
    done = helm("template", release, str(chart), *where, *options)
    if done.returncode != 0:
        raise ToolError(done.stderr)
    return done.stdout


def manifest(file: str) -> str:
    release, values = MANIFESTS[file]
    rendered = template(release, ["--values", str(ROOT / values)])
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    return HEAD.format(values=values, name=Path(file).name, version=version) + rendered


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["build"]:
        for name in (KUBECONFORM, COMPOSE, HELM):
            if not place(name).exists():
                print(f"building {place(name).name} by Go, once: helm takes minutes", flush=True)
            print(tool(name), flush=True)
        return 0
    if list(arguments) == ["manifests"]:
        for file in MANIFESTS:
            (ROOT / file).write_text(manifest(file))
            print(file)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as exc:
        sys.exit(f"deploy_tools: {exc}")
