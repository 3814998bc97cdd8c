"""What the chart renders for NVIDIA's own programs: they fit each other and the controller; nothing looks at nodes."""

import csv
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpu_control_plane.agent.exporter.catalogue import METRICS
from gpu_control_plane.api.names import GPU_LABELS
from gpu_control_plane.api.pod import Pod
from gpu_control_plane.bootstrap.operands import OURS, operand_of
from gpu_control_plane.local.errors import BuildFailed
from helm.chart import CHART, NAMESPACE, OPERANDS, Helm, Objects, Refused
from helm.conftest import cannot
from helm.operands import (
    BOOTSTRAP_SETS,
    CHOSEN,
    COMPONENTS,
    DCGM,
    EXPORTER,
    GFD,
    VALIDATOR,
    steps,
    switched_on,
    the_container,
    variable,
)
from helm.rules import rules_of
from helm.schemas import PATTERN, VERSIONS, kubernetes_schemas


@pytest.mark.parametrize("section", COMPONENTS)
def test_a_program_comes_when_it_is_switched_on_and_alone(helm: Helm, section: str) -> None:
    def programs(objects: Objects) -> set[str]:
        return {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in objects.all} & set(OURS)

    assert programs(helm.objects()) == {"agent"}
    assert programs(helm.objects(switched_on(section))) == {"agent", COMPONENTS[section]}


@pytest.mark.parametrize("section", COMPONENTS)
def test_a_program_without_an_image_is_refused_with_what_to_do(helm: Helm, section: str) -> None:
    with pytest.raises(Refused, match=rf"bootstrap\.{section}\.enabled needs bootstrap\.{section}\.image"):
        helm.template({"bootstrap": {section: {"enabled": True}}})


@pytest.mark.parametrize("values", BOOTSTRAP_SETS.values(), ids=BOOTSTRAP_SETS)
def test_the_bootstrap_controller_knows_every_pod(helm: Helm, values: dict[str, Any]) -> None:
    for component, template in helm.objects(values).pods():
        if component not in ("controller", "install-crds", "test", "cleanup", "undo-runtime"):
            manifest = {
                "metadata": {**template["metadata"], "name": "x", "namespace": NAMESPACE},
                "spec": template["spec"],
            }
            assert operand_of(msgspec.convert(manifest, Pod), NAMESPACE) == component
            assert template["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpu"


@pytest.mark.parametrize("values", [{}, switched_on(), CHOSEN], ids=["default", "all", "chosen"])
def test_programs_run_where_the_agent_does(helm: Helm, values: dict[str, Any]) -> None:
    """Exactly on managed nodes with a card. Others than that, only the agent can be narrowed down."""
    objects = helm.objects(values)
    agent = objects.pod("agent")["spec"]
    for component, template in objects.pods():
        if component in COMPONENTS.values():
            for part in ("affinity", "nodeSelector", "tolerations"):
                assert template["spec"][part] == agent[part]
    terms = agent["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [term["matchExpressions"][0] for term in terms] == [
        {"key": label, "operator": "In", "values": ["true"]} for label in GPU_LABELS
    ]


def test_nothing_depends_on_the_nodes_there_are(helm: Helm) -> None:
    """Templates ask the cluster for nothing, so a node that joins changes no pod of another."""
    for file in CHART.glob("templates/**/*"):
        if file.is_file():
            assert not re.search(r"\blookup\b|status|uuidv4|randAlpha|\bnow\b", _code(file.read_text())), file.name
    arguments = ("template", "gpu", str(CHART), "--namespace", NAMESPACE, "--kube-version", VERSIONS[-1])
    assert helm.run(*arguments, values=CHOSEN) == helm.run(*arguments, values=CHOSEN)


@pytest.mark.parametrize(
    ("values", "tokens"),
    [
        (switched_on(), {VALIDATOR}),
        (CHOSEN, {GFD, VALIDATOR}),
        ({"bootstrap": {"gfd": {"enabled": True, "image": "x", "config": "configurations"}}}, {GFD}),
        ({"bootstrap": {"gfd": {"enabled": True, "image": "x", "nodeFeatureAPI": True}}}, {GFD}),
    ],
    ids=["all", "chosen", "config", "api"],
)
def test_only_pods_that_use_the_api_have_a_token(helm: Helm, values: dict[str, Any], tokens: set[str]) -> None:
    objects = helm.objects(values)
    pods = {name: each["spec"] for name, each in objects.pods() if name in COMPONENTS.values()}
    assert {name for name, spec in pods.items() if spec["automountServiceAccountToken"]} == tokens
    accounts = {spec["serviceAccountName"] for spec in pods.values()}
    assert {each["subjects"][0]["name"] for each in objects.of("RoleBinding", "ClusterRoleBinding")} & accounts == {
        f"gpu-control-plane-{name}" for name in tokens
    }


def test_rights_are_as_few_as_can_be(helm: Helm) -> None:
    objects = helm.objects(CHOSEN)
    reading = rules_of(objects.one("ClusterRole", "gpu-control-plane:gpu-feature-discovery"))
    assert [(rule.resources, rule.verbs) for rule in reading] == [(("nodes",), ("list", "watch"))]
    writing = rules_of(objects.one("Role", "gpu-control-plane-gpu-feature-discovery"))
    assert {verb for rule in writing for verb in rule.verbs} == {"get", "create", "update"}
    role = objects.one("Role", "gpu-control-plane-validator")
    assert role["metadata"]["namespace"] == OPERANDS
    assert [(rule.resources, rule.verbs) for rule in rules_of(role)] == [(("daemonsets",), ("list",))]


def test_the_host_engine_sees_the_hosts_processes_and_the_drivers_files(helm: Helm) -> None:
    spec = helm.objects(switched_on()).pod(DCGM)["spec"]
    (engine,) = spec["containers"]
    assert spec["hostPID"]
    assert engine["securityContext"] == {"privileged": True}
    mounts = {each["mountPath"]: each for each in engine["volumeMounts"]}
    assert mounts["/run/nvidia/driver"]["mountPropagation"] == "HostToContainer"


def test_the_host_engine_gets_its_arguments_from_the_file(helm: Helm, tmp_path: Path) -> None:
    """The command is run by a real shell, with the file's place and the program replaced."""
    objects = helm.objects(CHOSEN)
    (engine,) = objects.pod(DCGM)["spec"]["containers"]
    (tmp_path / "nv-hostengine.arguments").write_text(
        objects.one("ConfigMap", "gpu-control-plane-dcgm")["data"]["nv-hostengine.arguments"]
    )
    shell, option, script = engine["command"]
    script = (
        script.replace("$$", "$").replace("/etc/gpu-control-plane", str(tmp_path)).replace("nv-hostengine ", "echo ", 1)
    )
    done = subprocess.run([shell, option, script], capture_output=True, text=True, check=True)
    assert done.stdout == "--no-daemon --bind-interface ALL --port 5566 --log-level WARN\n"


def test_other_arguments_restart_the_engine_and_other_metrics_the_exporter(helm: Helm) -> None:
    def annotations(component: str, **section: object) -> dict[str, str]:
        values = switched_on()
        values["bootstrap"][{"dcgm": "dcgm", "dcgm-exporter": "dcgmExporter"}[component]] |= section
        return dict(helm.objects(values).pod(component)["metadata"]["annotations"])

    assert annotations(DCGM) != annotations(DCGM, arguments=["--log-level", "WARN"])
    assert annotations(EXPORTER) != annotations(EXPORTER, metrics="DCGM_FI_DEV_GPU_TEMP, gauge, Heat.")


@pytest.mark.parametrize(
    ("sections", "engine"),
    [(("dcgm", "dcgmExporter"), "gpu-control-plane-dcgm:5555"), (("dcgmExporter",), None)],
    ids=["engine", "embedded"],
)
def test_the_exporter_asks_the_host_engine_where_there_is_one(
    helm: Helm, sections: tuple[str, ...], engine: str | None
) -> None:
    objects = helm.objects(switched_on(*sections))
    assert variable(EXPORTER, "DCGM_REMOTE_HOSTENGINE_INFO")(objects) == engine
    if engine:
        service = objects.one("Service", "gpu-control-plane-dcgm")
        assert service["spec"]["internalTrafficPolicy"] == "Local"
        (rule,) = objects.one("NetworkPolicy", "gpu-control-plane-dcgm")["spec"]["ingress"]
        assert rule["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == EXPORTER


@pytest.mark.parametrize("sections", [("dcgm", "dcgmExporter"), ("dcgmExporter",)], ids=["engine", "embedded"])
def test_the_exporter_gets_cards_on_nodes_that_heed_privileged_containers_alone(
    helm: Helm, sections: tuple[str, ...]
) -> None:
    """docs/security.md has nodes ignore NVIDIA_VISIBLE_DEVICES of others. The exporter ends without NVML."""
    capabilities = the_container(EXPORTER, "securityContext", "capabilities")
    assert capabilities(helm.objects(switched_on(*sections))) == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}


def test_prometheus_finds_the_exporter(helm: Helm) -> None:
    objects = helm.objects(CHOSEN)
    (monitor,) = objects.of("ServiceMonitor")
    service = objects.one("Service", "gpu-control-plane-dcgm-exporter")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert service["spec"]["selector"].items() <= objects.pod(EXPORTER)["metadata"]["labels"].items()


def test_a_free_card_does_not_seem_to_be_the_exporters(helm: Helm) -> None:
    """What its own pod is called must not get into readings: dashboards take it for the pod that has the card."""
    (endpoint,) = helm.objects(CHOSEN).of("ServiceMonitor")[0]["spec"]["endpoints"]
    assert endpoint["honorLabels"]
    dropped = [rule["regex"] for rule in endpoint["relabelings"] if rule.get("action") == "labeldrop"]
    for label in ("namespace", "pod", "container"):
        assert any(re.fullmatch(regex, label) for regex in dropped)
    assert not any(re.fullmatch(regex, label) for regex in dropped for label in ("job", "instance", "__address__"))


def test_alerts_know_the_node_of_a_card_whatever_the_exporter_calls_it(helm: Helm) -> None:
    """Releases after 4.5.3 write `hostname`; alerts and dashboards ask for `Hostname`. What is written so stays."""
    (endpoint,) = helm.objects(CHOSEN).of("ServiceMonitor")[0]["spec"]["endpoints"]
    assert {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "Hostname"} in endpoint["relabelings"]
    assert endpoint["honorLabels"]


def test_labels_of_ours_cannot_be_taken_over(helm: Helm) -> None:
    """Pods are found by them."""
    assert helm.objects(CHOSEN).pod(EXPORTER)["metadata"]["labels"]["app.kubernetes.io/component"] == EXPORTER


def test_the_exporter_has_the_agents_readings(helm: Helm) -> None:
    """Dashboards and alerts work with it, too. The exporter does not start with a line of more than three fields:
    a text with a comma has to be quoted, and from its first character on."""
    (lines,) = (
        helm.objects(switched_on("dcgmExporter")).one("ConfigMap", f"gpu-control-plane-{EXPORTER}")["data"].values()
    )
    records = list(csv.reader((line for line in lines.splitlines() if not line.startswith("#")), strict=True))
    assert {len(record) for record in records} == {3}
    metrics = {name.strip(): (kind.strip(), text.strip()) for name, kind, text in records}
    assert metrics.pop("DCGM_FI_DRIVER_VERSION")[0] == "label"
    # dcgm-exporter counts XIDs in a window, which is no counter.
    expected = {metric.name: ("gauge" if "_EXP_" in metric.name else metric.kind, metric.help) for metric in METRICS}
    assert metrics == expected


def test_configurations_are_chosen_before_the_start_and_followed_after_it(helm: Helm) -> None:
    objects = helm.objects(CHOSEN)
    spec = objects.pod(GFD)["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["config-manager-init"]
    assert spec["shareProcessNamespace"]
    assert [variable(GFD, "ONESHOT", name)(objects) for name in ("config-manager-init", "config-manager")] == [
        "true",
        "false",
    ]
    assert [variable(GFD, "SEND_SIGNAL", name)(objects) for name in ("config-manager-init", "config-manager")] == [
        "false",
        "true",
    ]
    # The signal goes to the process of this name.
    assert the_container(GFD, "command")(objects) == [variable(GFD, "PROCESS_TO_SIGNAL", "config-manager")(objects)]
    plain = helm.objects(switched_on()).pod(GFD)["spec"]
    assert "initContainers" not in plain
    assert len(plain["containers"]) == 1


def test_steps_of_the_validator_are_named_as_the_bootstrap_controller_reads_them(helm: Helm) -> None:
    plain = ["driver-validation", "toolkit-validation", "cuda-validation"]
    assert steps(helm.objects(switched_on())) == plain
    assert steps(helm.objects(CHOSEN)) == [*plain, "nvidia-fs-validation", "gdrcopy-validation"]


@pytest.mark.parametrize("values", BOOTSTRAP_SETS.values(), ids=BOOTSTRAP_SETS)
def test_everything_is_labelled_and_in_its_place(helm: Helm, values: dict[str, Any]) -> None:
    for each in helm.objects(values).all:
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "gpu-control-plane"
        assert each["metadata"].get("namespace", NAMESPACE) in (NAMESPACE, "default", OPERANDS)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_every_render_is_valid_for(version: str, helm: Helm, kubeconform: Path, tmp_path: Path) -> None:
    """Without the ServiceMonitor, whose kind is not Kubernetes' own: a real API server looks at that."""
    try:
        schemas = kubernetes_schemas(version)
    except BuildFailed as why:
        cannot(str(why))
        return
    for name, values in BOOTSTRAP_SETS.items():
        objects = Objects(yaml.load_all(helm.template(values, version=version), yaml.CSafeLoader))
        kept = [each for each in objects.all if each["kind"] != "ServiceMonitor"]
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(kept))
    done = subprocess.run(
        [kubeconform, "-strict", "-summary", "-schema-location", f"{schemas}/{PATTERN}", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


def _code(template: str) -> str:
    """What Helm evaluates, without comments."""
    return " ".join(re.findall(r"\{\{-?(?!-?\s*/\*)(.*?)\}\}", template, re.DOTALL))
