"""The chart and the manifests: the real helm renders them, kubeconform judges them with the vendored schemas, and what
they say to the sidecar is loaded with its real settings. No network, no cluster.
Go builds both tools."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecar.process.admin_access import METRICS
from sidecar.process.admin_access import PROBES as ADMIN_PROBES
from sidecar.process.sections import AdminAccess
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings, load
from tests.deploy.test_compose import pinned
from tools import deploy_tools
from tools.alert_rules import RUNBOOK
from tools.deploy_tools import CHART, KUBECONFORM, MANIFESTS, ROOT, ToolError, helm, manifest, template, tool

pytestmark = [
    pytest.mark.needs("go"),
    pytest.mark.timeout(1200),  # the first one builds both, unless `make test` has
]
SCHEMAS = Path(__file__).parent / "schemas"
VERSIONS = sorted(folder.name.removeprefix("v") for folder in SCHEMAS.glob("v*"))
BESIDE = ["--set", "mode=beside,beside.broker=b-$(NODE_ID).b:9092,beside.bootstrap=b:9094"]
EXISTING = ["--set", "mode=existing,existing.podLabels.app=kafka"]
EVERYTHING = ["--set", "podMonitor.enabled=true,networkPolicy.internal[0].podSelector.matchLabels.app=audit"]
GUARDED = ["--values", str(ROOT / "deploy/kubernetes/values-admin-access.yaml")]
CASES = {
    "cluster": [],
    "everything": EVERYTHING,
    "single": ["--set", "brokers.replicas=1,networkPolicy.enabled=false,podDisruptionBudget.enabled=false"],
    "beside": [*BESIDE, "--set", "podMonitor.enabled=true,beside.firstNodeId=3"],
    "existing": [*EXISTING, "--set", "podMonitor.enabled=true"],
    "guarded": GUARDED,
    "guarded beside": [*BESIDE, *GUARDED],
    "guarded existing": [*EXISTING, *GUARDED],
    "pinned": ["--set", f"image.digest=sha256:{'0' * 64},brokers.storage.className=fast,nodeSelector.disk=ssd"],
}
Doc = dict[str, Any]


def docs(text: str) -> list[Doc]:
    return [d for d in yaml.safe_load_all(text) if d]


def judged(text: str, version: str) -> dict[str, int]:
    """Returns kubeconform's counts. It uses the vendored schemas only; a kind without one is an error."""
    places = [f"{SCHEMAS}/v{version}", f"{SCHEMAS}/crd"]
    where = [x for p in places for x in ("-schema-location", p + "/{{.ResourceKind}}{{.KindSuffix}}.json")]
    command = [str(tool(KUBECONFORM)), "-strict", "-summary", "-output", "json", "-kubernetes-version", version, *where]
    done = subprocess.run([*command, "-"], input=text, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode == 0) == (not found["resources"]), found
    return dict(found["summary"])


def all_valid(text: str) -> dict[str, int]:
    return {"valid": len(docs(text)), "invalid": 0, "errors": 0, "skipped": 0}


def test_there_are_schemas_of_two_versions() -> None:
    assert len(VERSIONS) == 2 and VERSIONS[0] == deploy_tools.KUBERNETES


@pytest.mark.parametrize("case", CASES)
def test_the_linter_has_nothing_to_say(case: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--kube-version", deploy_tools.KUBERNETES, *CASES[case])
    assert done.returncode == 0 and "[WARNING]" not in done.stdout, done.stdout


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_rendered_is_valid(case: str, version: str) -> None:
    text = template("k", CASES[case])
    assert len(docs(text)) >= 2
    assert judged(text, version) == all_valid(text)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", [*MANIFESTS, "deploy/kubernetes/strimzi/kafka.yaml"])
def test_manifests_are_valid(root: Path, file: str, version: str) -> None:
    text = (root / file).read_text()
    assert judged(text, version) == all_valid(text)


@pytest.mark.parametrize("file", MANIFESTS)
def test_manifests_are_what_the_chart_renders(root: Path, file: str) -> None:
    assert (root / file).read_text() == manifest(file), "run `python -m tools.deploy_tools manifests`"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_refuse_what_the_api_server_would(version: str, root: Path) -> None:
    good = template("k", EVERYTHING)
    strimzi = (root / "deploy/kubernetes/strimzi/kafka.yaml").read_text()
    wrong = [
        good.replace("readOnlyRootFilesystem", "readOnlyRootFileSystem"),
        good.replace("replicas: 3", "replicas: three"),
        good.replace("kind: PodMonitor", "kind: PodMonitors"),
        good.replace("podMetricsEndpoints", "endpoints"),
        strimzi.replace(
            "template:\n      pod:", "template:\n      pod:\n        initContainers: []"
        ),  # as kafka.yaml says
        strimzi.replace("advertisedHostTemplate", "advertisedHost"),
    ]
    for text in wrong:
        assert text not in (good, strimzi)
        found = judged(text, version)
        assert found["invalid"] + found["errors"] >= 1, found


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mode=else", "mode"),
        ("mode=beside", "beside"),
        ("mode=beside,beside.broker=b:9092,beside.bootstrap=b:9094", "NODE_ID"),
        ("mode=existing", "podLabels"),
        ("sidecar.settings.listen=0.0.0.0:1", "listen"),
        ("brokers.replicas=0", "replicas"),
        ("typo=1", "typo"),
        ("prometheusRule.enabled=true,image.digest=latest", "digest"),
        ("sidecar.settings.admin_access.token_file=/t", "token_file"),
        ("sidecar.adminAccess.token=abc", "token"),
        ("podMonitor.enabled=true,sidecar.adminAccess.tlsSecret=s", "serverName"),
        ("podMonitor.tls.ca.secret=s,podMonitor.tls.ca.configMap=c", "ca"),
        ("sidecar.settings.gruops.include={a}", "gruops"),
        ("sidecar.settings.broker_wait_ms=1", "broker_wait_ms"),
        ("brokers.config.KAFKA_NODE_ID=1", "KAFKA_NODE_ID"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(given: str, said: str) -> None:
    with pytest.raises(ToolError, match=re.escape(said)):
        template("k", ["--set", given])


def test_the_schema_has_every_setting() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    settings = schema["properties"]["sidecar"]["properties"]["settings"]
    assert settings["additionalProperties"] is False and set(settings["properties"]) == set(Settings.model_fields)


@pytest.mark.parametrize("case", [case for case in CASES if "existing" not in case])
def test_no_variable_is_given_twice(case: str) -> None:
    """Symptom: brokers.config could name a variable that the chart had set as well."""
    config = ["--set-string", "brokers.config.KAFKA_MIN_INSYNC_REPLICAS=1"]
    for container in containers(docs(template("k", [*CASES[case], *config]))):
        names = [entry["name"] for entry in container["env"]]
        assert len(names) == len(set(names))
        if container["name"] == "broker":
            assert {"name": "KAFKA_MIN_INSYNC_REPLICAS", "value": "1"} in container["env"]


# ---- what it says to the sidecar ------------------------------------------------------------------------------
def stateful(found: list[Doc]) -> Doc:
    return next(d for d in found if d["kind"] == "StatefulSet")


def containers(found: list[Doc]) -> Iterator[Doc]:
    pod = stateful(found)["spec"]["template"]["spec"]
    yield from pod.get("initContainers", [])
    yield from pod["containers"]


def environment(container: Doc, name: str, index: int) -> dict[str, str]:
    """The variables of one pod, as the kubelet makes them."""
    known = {"metadata.name": f"{name}-{index}", "metadata.labels['apps.kubernetes.io/pod-index']": str(index)}
    made: dict[str, str] = {}
    for entry in container["env"]:
        value = entry["value"] if "value" in entry else known[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        made[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda m: made[m[1]], value)
    return made


def settings_of(found: list[Doc], index: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    container = next(c for c in containers(found) if c["name"] == "sidecar")
    config = folder / "sidecar.yaml"
    config.write_text(next(d for d in found if d["kind"] == "ConfigMap")["data"]["sidecar.yaml"])
    mount = next(m for m in container["volumeMounts"] if m["name"] == "sidecar-settings")["mountPath"]
    assert container["args"] == ["run", "--config", f"{mount}/sidecar.yaml"]
    for name in [k for k in os.environ if k.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    for name, value in environment(container, stateful(found)["metadata"]["name"], index).items():
        if name.startswith("SIDECAR_"):
            monkeypatch.setenv(name, value)
    return load(config, {})


def listeners(text: str) -> dict[str, str]:
    return dict(x.split("://") for x in text.split(","))


@pytest.mark.parametrize("index", [0, 2])
def test_each_sidecar_stands_on_the_advertised_address_of_its_broker(
    root: Path, index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = docs((root / "deploy/kubernetes/cluster.yaml").read_text())
    s = settings_of(found, index, tmp_path, monkeypatch)
    broker = environment(next(c for c in containers(found) if c["name"] == "broker"), "kafka", index)
    bound, advertised = listeners(broker["KAFKA_LISTENERS"]), listeners(broker["KAFKA_ADVERTISED_LISTENERS"])
    service = stateful(found)["spec"]["serviceName"]
    assert any(d["kind"] == "Service" and d["metadata"]["name"] == service for d in found)
    host = f"kafka-{index}.{service}.kafka.svc.cluster.local"
    assert advertised["CLIENTS"] == f"{host}:{split(s.listen)[1]}"
    assert s.broker == bound["CLIENTS"]
    assert advertised["INTERNAL"] in s.bootstrap.split(",")
    assert str(s.node_id) == broker["KAFKA_NODE_ID"]
    assert f"{index}@{host}:9093" in broker["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
    assert s.groups.include == ("payments.*",)


def test_strimzi_advertises_the_sidecars(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "deploy/kubernetes/strimzi"
    found = docs((folder / "sidecars.yaml").read_text())
    *pools, kafka = docs((folder / "kafka.yaml").read_text())
    brokers = next(p for p in pools if p["spec"]["roles"] == ["broker"])
    cluster, pool = kafka["metadata"]["name"], brokers["metadata"]["name"]
    assert brokers["spec"]["replicas"] == stateful(found)["spec"]["replicas"]
    clients, direct = kafka["spec"]["kafka"]["listeners"]
    s = settings_of(found, 2, tmp_path, monkeypatch)
    assert s.broker == f"{cluster}-{pool}-2.{cluster}-kafka-brokers.kafka.svc.cluster.local:{clients['port']}"
    assert s.bootstrap == f"{cluster}-kafka-bootstrap.kafka.svc.cluster.local:{direct['port']}"
    name, service = stateful(found)["metadata"]["name"], stateful(found)["spec"]["serviceName"]
    told = clients["configuration"]
    assert told["advertisedHostTemplate"] == f"{name}-{{nodeId}}.{service}.kafka.svc.cluster.local"
    assert int(told["advertisedPortTemplate"]) == split(s.listen)[1]
    labels = stateful(found)["spec"]["template"]["metadata"]["labels"].items()
    for listener in (clients, direct):
        assert listener["networkPolicyPeers"][0]["podSelector"]["matchLabels"].items() <= labels


def cluster_id(release: str, *options: str) -> str:
    found = docs(template(release, options))
    return environment(next(c for c in containers(found) if c["name"] == "broker"), release, 0)["CLUSTER_ID"]


def test_no_two_installations_have_one_cluster_id() -> None:
    mine = cluster_id("k")
    others = [cluster_id("l"), cluster_id("k", "--namespace", "another"), cluster_id("m")]
    assert len({mine, *others}) == 4
    assert cluster_id("k", "--set", "brokers.heap=-Xmx2g") == mine  # an upgrade keeps it
    for text in (mine, *others):
        assert len(base64.urlsafe_b64decode(text + "==")) == 16 and not text.startswith("-")
    own = "4L6g3nShT-eMCtK--X86sw"
    assert cluster_id("k", "--set", f"brokers.clusterId={own}") == own


# ---- what it allows -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["everything", "beside"])
def test_containers_can_do_little_and_tell_their_health(case: str) -> None:
    found = docs(template("k", CASES[case]))
    pod = stateful(found)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    for container in containers(found):
        context = container["securityContext"]
        assert context["runAsUser"] > 0 and context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False and context["capabilities"]["drop"] == ["ALL"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container)
        assert "memory" in container["resources"]["limits"]
        assert pinned(container["image"])
        ports = {p["name"] for p in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe].get("httpGet") or container[probe]["tcpSocket"]
            assert asked["port"] in ports
        assert {m["name"] for m in container["volumeMounts"]} <= {v["name"] for v in pod["volumes"]} | {"data"}


def test_the_sidecar_is_native_where_a_broker_is_in_the_pod() -> None:
    pod = stateful(docs(template("k")))["spec"]["template"]["spec"]
    assert [c["name"] for c in pod["initContainers"]] == ["sidecar"]
    assert pod["initContainers"][0]["restartPolicy"] == "Always"
    beside = stateful(docs(template("k", BESIDE)))["spec"]["template"]["spec"]
    assert "initContainers" not in beside and "restartPolicy" not in beside["containers"][0]


def test_selectors_find_the_pods_and_ports_that_there_are() -> None:
    found = docs(template("k", EVERYTHING))
    labels = stateful(found)["spec"]["template"]["metadata"]["labels"].items()
    ports = {p["name"]: p["containerPort"] for c in containers(found) for p in c["ports"]}
    kinds = {d["kind"]: d for d in found}
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        assert kinds[kind]["spec"]["selector"]["matchLabels"].items() <= labels
    assert {e["port"] for e in kinds["PodMonitor"]["spec"]["podMetricsEndpoints"]} <= set(ports)
    scraped = kinds["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
    given = {"job": "kafka-group-sidecar", "cluster": "kafka/k"}
    assert {r["targetLabel"]: r["replacement"] for r in scraped["relabelings"]} == given
    policy = kinds["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels
    rules = {tuple(p["port"] for p in rule["ports"]): rule["from"] for rule in policy["ingress"]}
    assert {p for allowed in rules for p in allowed} == set(ports.values())
    assert rules[(ports["clients"],)] == [{"podSelector": {}}]
    own = rules[(ports["peers"], ports["internal"], ports["controller"])]
    assert [peer["podSelector"]["matchLabels"].items() <= labels for peer in own] == [True]
    assert rules[(ports["internal"],)] == [{"podSelector": {"matchLabels": {"app": "audit"}}}]


def policies(*options: str) -> list[Doc]:
    return [d for d in docs(template("k", options)) if d["kind"] == "NetworkPolicy"]


@pytest.mark.parametrize("mode", [[], BESIDE, [*EXISTING, "--set", "existing.brokerPorts={9094}"]])
def test_an_empty_list_of_peers_lets_nobody_in(mode: list[str]) -> None:
    """An empty `from` would let everybody in."""
    nobody = ",".join(f"networkPolicy.{who}=[]" for who in ("clients", "monitoring", "internal"))
    (policy,) = policies(*mode, "--set-json", nobody)
    assert [bool(rule["from"]) for rule in policy["spec"]["ingress"]] == [True]
    assert policy["spec"]["ingress"][0]["ports"][0]["port"] == 9096


def test_brokers_that_exist_are_not_cut_off_from_each_other() -> None:
    """Symptom: mode existing brought a policy for the brokers' pods that allowed the sidecars' ports only."""
    assert policies(*EXISTING) == []
    (policy,) = policies(*EXISTING, "--set", "existing.brokerPorts={9094,9093}")
    (among,) = (rule for rule in policy["spec"]["ingress"] if len(rule["ports"]) == 3)
    assert [p["port"] for p in among["ports"]] == [9096, 9094, 9093]
    assert among["from"] == [{"podSelector": {"matchLabels": {"app": "kafka"}}}]


@pytest.mark.parametrize("mode", [[], BESIDE])
def test_services_name_ports_by_their_numbers(mode: list[str]) -> None:
    """Before 1.32 Kubernetes finds no name of a port in a native sidecar container (kubernetes#127976)."""
    found = docs(template("k", mode))
    ports = {p["containerPort"] for c in containers(found) for p in c["ports"]}
    services = [d for d in found if d["kind"] == "Service"]
    asked = [port.get("targetPort", port["port"]) for d in services for port in d["spec"]["ports"]]
    assert len(services) == 2 and set(asked) <= ports


def test_the_audits_pod_can_do_little_and_reaches_the_brokers(root: Path) -> None:
    found = docs((root / "deploy/audit/kubernetes.yaml").read_text())
    (deployment,) = (d for d in found if d["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (audit,) = pod["containers"]
    assert audit["securityContext"]["allowPrivilegeEscalation"] is False
    assert audit["securityContext"]["readOnlyRootFilesystem"] is True
    assert audit["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert pod["automountServiceAccountToken"] is False and pod["securityContext"]["runAsNonRoot"] is True
    assert {m["name"] for m in audit["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    cluster = docs((root / "deploy/kubernetes/cluster.yaml").read_text())
    name, service = stateful(cluster)["metadata"]["name"], stateful(cluster)["spec"]["serviceName"]
    (brokers,) = (a.removeprefix("--from=kafka://") for a in audit["args"] if a.startswith("--from="))
    assert brokers.split(",") == [f"{name}-{i}.{service}:9094" for i in range(2)]
    *_, kafka = docs((root / "deploy/kubernetes/strimzi/kafka.yaml").read_text())
    _, direct = kafka["spec"]["kafka"]["listeners"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert labels in [peer["podSelector"]["matchLabels"] for peer in direct["networkPolicyPeers"]]


def test_dashboards_and_rules_are_taken_from_their_folders(tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    board = {"title": "Groups {{ not a template }}", "panels": []}
    rules = {
        "groups": [{"name": "g", "rules": [{"alert": "Down", "expr": "up == 0", "annotations": {"a": "{{ $value }}"}}]}]
    }
    for folder in ("grafana", "prometheus"):
        shutil.rmtree(chart / folder)
        (chart / folder / "dashboards").mkdir(parents=True)
    (chart / "grafana/dashboards/Sidecar_Groups.json").write_text(json.dumps(board, indent=2))
    on = ["--set", "dashboards.enabled=true,prometheusRule.enabled=true"]
    with pytest.raises(ToolError, match=r"no prometheus/rules\.yml"):
        template("k", on, chart)
    (chart / "prometheus/rules.yml").write_text(yaml.safe_dump(rules))
    text = template("k", on, chart)
    found = {(d["kind"], d["metadata"]["name"]): d for d in docs(text)}
    config = found["ConfigMap", "k-dashboard-sidecar-groups"]
    assert json.loads(config["data"]["Sidecar_Groups.json"]) == board
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["PrometheusRule", "k-sidecar"]["spec"] == rules
    assert judged(text, VERSIONS[0]) == all_valid(text)


def test_alerts_have_a_link_where_the_runbook_has_an_address() -> None:
    def urls(*more: str) -> set[str]:
        text = template("k", ["--set", ",".join(["prometheusRule.enabled=true", *more])])
        (rule,) = (d for d in docs(text) if d["kind"] == "PrometheusRule")
        rules = [r for group in rule["spec"]["groups"] for r in group["rules"] if "alert" in r]
        return {r["annotations"]["runbook_url"].partition("#")[0] for r in rules}

    assert urls() == {RUNBOOK}
    assert urls("prometheusRule.runbookUrl=https://a.example/b") == {"https://a.example/b"}
    with pytest.raises(ToolError, match="runbookUrl"):
        urls("prometheusRule.runbookUrl=docs")


def notes(folder: Path, options: list[str]) -> str:
    """Helm prints notes only where there is a cluster."""
    chart = folder / "chart"
    if not chart.exists():
        shutil.copytree(CHART, chart)
        (chart / "templates/NOTES.txt").rename(chart / "notes.txt")
        (chart / "templates/notes.yaml").write_text(
            'kind: Notes\ntext: |\n  {{- tpl (.Files.Get "notes.txt") . | nindent 2 }}\n'
        )
    return next(str(d["text"]) for d in docs(template("k", options, chart)) if d["kind"] == "Notes")


@pytest.mark.parametrize("more", [[], GUARDED], ids=["open", "guarded"])
def test_for_existing_pods_the_notes_print_the_container(tmp_path: Path, more: list[str]) -> None:
    said = notes(tmp_path, [*EXISTING, *more])
    spec = yaml.safe_load(said[said.index("\nspec:\n") : said.index("\nNo group is managed yet")])["spec"]
    native = stateful(docs(template("k", more)))["spec"]["template"]["spec"]["initContainers"][0]
    (sidecar,) = spec["initContainers"]
    assert {k: v for k, v in sidecar.items() if k != "env"} == {k: v for k, v in native.items() if k != "env"}
    assert [e["name"] for e in sidecar["env"]] == [e["name"] for e in native["env"]]
    assert spec["volumes"][0]["configMap"]["name"] == "k-settings"
    assert {m["name"] for m in sidecar["volumeMounts"]} == {v["name"] for v in spec["volumes"]}


# ---- who may ask the admin port -------------------------------------------------------------------------------
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def sidecar_of(found: list[Doc]) -> Doc:
    return next(c for c in containers(found) if c["name"] == "sidecar")


def scraped(found: list[Doc]) -> Doc:
    (endpoint,) = next(d for d in found if d["kind"] == "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == METRICS
    return dict(endpoint)


def secret_behind(found: list[Doc], file: Path) -> tuple[str, str]:
    """Name and key of the Secret that the sidecar finds at this path."""
    mount = next(m for m in sidecar_of(found)["volumeMounts"] if file.is_relative_to(m["mountPath"]))
    assert mount["readOnly"] is True and "subPath" not in mount  # with subPath it would never change
    volumes = stateful(found)["spec"]["template"]["spec"]["volumes"]
    secret = next(v for v in volumes if v["name"] == mount["name"])["secret"]
    path = str(file.relative_to(mount["mountPath"]))
    keys = {item["path"]: item["key"] for item in secret.get("items", [])}
    return secret["secretName"], keys[path] if keys else path


def test_without_admin_access_nothing_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = docs(template("k", EVERYTHING))
    assert settings_of(found, 0, tmp_path, monkeypatch).admin_access == AdminAccess()  # type: ignore[call-arg]
    assert all("scheme" not in sidecar_of(found)[p]["httpGet"] for p in PROBES)
    assert not {"authorization", "scheme", "tlsConfig"} & set(scraped(found))


@pytest.mark.parametrize("case", ["guarded", "guarded beside"])
def test_the_admin_port_wants_the_tokens_and_speaks_the_tls_of_the_secrets(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = docs(template("k", CASES[case]))
    access = settings_of(found, 0, tmp_path, monkeypatch).admin_access
    assert access.token_file and access.tls_certificate and access.tls_key
    assert secret_behind(found, access.token_file) == ("sidecar-admin-token", "token")
    assert secret_behind(found, access.tls_certificate) == ("sidecar-admin-tls", "tls.crt")
    assert secret_behind(found, access.tls_key) == ("sidecar-admin-tls", "tls.key")
    assert access.hosts == ("sidecar.example.org",) and access.metrics_open is False
    asked = {p: sidecar_of(found)[p]["httpGet"] for p in PROBES}
    assert {a["scheme"] for a in asked.values()} == {"HTTPS"}
    assert {a["path"] for a in asked.values()} == set(ADMIN_PROBES)  # those need no token
    assert all("host" not in a for a in asked.values())  # so it is the pod's address, which always counts
    how = scraped(found)
    assert how["scheme"] == "https"
    assert how["authorization"] == {"credentials": {"name": "sidecar-admin-token", "key": "token"}}
    ca = {"secret": {"name": "sidecar-admin-tls", "key": "ca.crt"}}
    assert how["tlsConfig"] == {"serverName": "sidecar.kafka.svc", "ca": ca}
    others = [c for c in containers(found) if c["name"] != "sidecar"]
    assert not any("sidecar-admin" in json.dumps(c) for c in others)


def test_what_prometheus_is_told_may_be_something_else() -> None:
    token = ["--set", "podMonitor.token.secret=scrape,podMonitor.token.key=one"]
    ca = ["--set", "podMonitor.tls.ca.secret=,podMonitor.tls.ca.configMap=ours,podMonitor.tls.ca.key=root.pem"]
    how = scraped(docs(template("k", [*GUARDED, *token, *ca])))
    assert how["authorization"] == {"credentials": {"name": "scrape", "key": "one"}}
    assert how["tlsConfig"]["ca"] == {"configMap": {"name": "ours", "key": "root.pem"}}
    public = scraped(docs(template("k", [*GUARDED, "--set", "podMonitor.tls.ca.secret="])))
    assert public["tlsConfig"] == {"serverName": "sidecar.kafka.svc"}


def test_open_metrics_are_scraped_without_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = docs(template("k", [*GUARDED, "--set", "sidecar.adminAccess.metricsOpen=true"]))
    assert settings_of(found, 0, tmp_path, monkeypatch).admin_access.metrics_open is True
    assert "authorization" not in scraped(found) and scraped(found)["scheme"] == "https"


@pytest.mark.parametrize(
    ("options", "said", "not_said"),
    [
        (
            [],
            ["neither a token nor TLS", "networkPolicy.monitoring lets in", "http://localhost:9400/", "pod/k-0 9400"],
            "get secret",
        ),
        (
            ["--set", "networkPolicy.enabled=false"],
            ["neither a token nor TLS", "Whoever reaches the pods"],
            "get secret",
        ),
        (
            ["--set", "sidecar.adminAccess.tokenSecret=s"],
            ["no TLS", """'{{index .data "token" | base64decode}}'"""],
            "names of groups",
        ),
        (["--set", "sidecar.adminAccess.tlsSecret=s"], ["no token", "https://localhost:9400/"], "nor TLS"),
        (GUARDED, ["https://localhost:9400/", "secret sidecar-admin-token "], "WARNING"),
        ([*BESIDE, *GUARDED, "--set", "beside.firstNodeId=3"], ["pod/k-3 9400"], "WARNING"),
        ([*EXISTING, *GUARDED], ["pod/POD 9400"], "WARNING"),
    ],
)
def test_the_notes_lead_to_the_page_and_warn_of_an_open_one(
    tmp_path: Path, options: list[str], said: list[str], not_said: str
) -> None:
    found = notes(tmp_path, options)
    assert [s for s in said if s not in found] == [] and not_said not in found, found
    assert ("WARNING" in found) == (GUARDED[1] not in options)


def test_notes_and_manifests_say_that_the_image_is_to_be_built(root: Path, tmp_path: Path) -> None:
    commands = ("docker build -t REGISTRY/kafka-group-sidecar:", "docker push REGISTRY", "kind load docker-image")
    for text in (notes(tmp_path, []), *((root / file).read_text() for file in MANIFESTS)):
        assert all(command in text for command in commands)
    assert "docker build" not in notes(tmp_path, ["--set", "image.repository=r.example.org/kafka-group-sidecar"])
    guide = (root / "docs/operate/deploy.md").read_text()
    assert all(command in guide for command in (*commands[:2], commands[2], "--set image.repository="))


def test_versions_of_chart_and_package_are_one(root: Path) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    found = re.search(r'^version = "(.+)"$', (root / "pyproject.toml").read_text(), re.M)
    assert found and chart["version"] == chart["appVersion"] == found[1]
