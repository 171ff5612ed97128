"""Make tests/deploy/schemas: JSON schemas of the Kubernetes kinds that deploy/ uses, for kubeconform without a network.

They come from package registries only, by their ordinary clients, in the versions below:
- Kubernetes' own kinds from the Python package kubernetes-validate, in the oldest and the newest version that count;
- PodMonitor and PrometheusRule from the Go module of the Prometheus operator, which holds its CRDs;
- Strimzi's Kafka and KafkaNodePool from its Maven artifacts: its own generator makes the CRDs of its classes. It needs
  Java 21 (JAVA_HOME).
What is not needed to validate is left out: descriptions, and definitions that no kind here refers to. All of it is under
the Apache License 2.0; tests/deploy/schemas/README.md says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TARGET = Path(__file__).resolve().parent.parent / "tests" / "deploy" / "schemas"
KUBERNETES_VALIDATE = "1.37.0"
VERSIONS = ("1.29.0", "1.37.0")
"""The first in which a native sidecar container needs no feature gate, and the newest that the package has."""
KINDS = (
    "configmap-v1",
    "networkpolicy-networking-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
    "serviceaccount-v1",
    "statefulset-apps-v1",
)
PROMETHEUS_OPERATOR = "v0.85.0"
PROMETHEUS_CRDS = ("podmonitors", "prometheusrules")
STRIMZI = "1.2.0"
STRIMZI_CLASSES = ("kafka.Kafka", "nodepool.KafkaNodePool")

Schema = dict[str, Any]


def kubernetes(folder: Path) -> Iterator[tuple[str, Schema]]:
    wheel = f"kubernetes-validate=={KUBERNETES_VALIDATE}"
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, wheel], check=True)
    with zipfile.ZipFile(next(folder.glob("kubernetes_validate-*.whl"))) as archive:
        for version in VERSIONS:
            base = f"kubernetes_validate/kubernetes-json-schema/v{version}-local-strict"
            definitions = json.loads(archive.read(f"{base}/_definitions.json"))["$defs"]
            for kind in KINDS:
                schema = json.loads(archive.read(f"{base}/{kind}.json"))
                yield f"v{version}/{kind}", whole(schema, definitions)


def whole(schema: Schema, definitions: Schema) -> Schema:
    """The schema with the definitions that it needs."""
    schema.pop("$id")
    used: Schema = {}

    def visit(node: object) -> object:
        if isinstance(node, list):
            return [visit(x) for x in node]
        if not isinstance(node, dict):
            return node
        ref = node.get("$ref")
        if isinstance(ref, str):
            name = ref.rpartition("/")[2]
            if name not in used:
                used[name] = None
                used[name] = visit(definitions[name])
            return {"$ref": f"#/$defs/{name}"}
        return {k: visit(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}

    visited = visit(schema)
    assert isinstance(visited, dict)
    return {**visited, "$defs": dict(sorted(used.items()))}


def prometheus() -> Iterator[tuple[str, Schema]]:
    module = f"github.com/prometheus-operator/prometheus-operator@{PROMETHEUS_OPERATOR}"
    done = subprocess.run(["go", "mod", "download", "-json", module], check=True, capture_output=True, text=True)
    folder = Path(json.loads(done.stdout)["Dir"], "example", "prometheus-operator-crd")
    for name in PROMETHEUS_CRDS:
        yield from of_crd((folder / f"monitoring.coreos.com_{name}.yaml").read_text())


def strimzi(folder: Path) -> Iterator[tuple[str, Schema]]:
    for artifact in ("api", "crd-generator"):
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        wanted = f"-Dartifact=io.strimzi:{artifact}:{STRIMZI}"
        subprocess.run(["mvn", "-q", "-B", plugin, wanted, f"-DoutputDirectory={folder}"], check=True)
    java = f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java"
    for name in STRIMZI_CLASSES:
        out = folder / f"{name}.yaml"
        made = f"io.strimzi.api.kafka.model.{name}={out}"
        jars = f"{folder}/crd-generator-{STRIMZI}.jar:{folder}/api-{STRIMZI}.jar"
        subprocess.run([java, "-cp", jars, "io.strimzi.crdgenerator.CrdGenerator", "--yaml", made], check=True)
        yield from of_crd(out.read_text())


def of_crd(text: str) -> Iterator[tuple[str, Schema]]:
    crd = yaml.safe_load(text)["spec"]
    for version in crd["versions"]:
        group = crd["group"].partition(".")[0]
        name = f"{crd['names']['kind'].lower()}-{group}-{version['name']}"
        schema = strict(version["schema"]["openAPIV3Schema"])
        assert isinstance(schema, dict)
        schema["properties"]["metadata"] = {"type": "object"}
        yield f"crd/{name}", schema


def strict(node: object) -> object:
    """An OpenAPI schema of a CRD as a JSON schema that refuses fields it does not know, as the API server does."""
    if isinstance(node, list):
        return [strict(x) for x in node]
    if not isinstance(node, dict):
        return node
    kept = {k: strict(v) for k, v in node.items() if not (k == "description" and isinstance(v, str))}
    if kept.pop("x-kubernetes-int-or-string", False):
        kept["type"] = ["integer", "string"]
        kept.pop("anyOf", None)
    if "properties" in kept and "type" in kept and not kept.get("x-kubernetes-preserve-unknown-fields"):
        kept.setdefault("additionalProperties", False)
    return kept


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, schema in [*kubernetes(Path(folder)), *prometheus(), *strimzi(Path(folder))]:
            file = TARGET / f"{name}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n")
            print(f"{name}: {file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
