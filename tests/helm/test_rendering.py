"""What the chart renders is valid for every supported Kubernetes, and asks for no more than it needs."""

import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from images.recipe import NAME

import gpu_control_plane
from gpu_control_plane.agent.command_line import agent
from gpu_control_plane.agent.timings import HealthTimings, health_timings
from gpu_control_plane.console.command_line import command as console
from gpu_control_plane.controller import TIMING_GROUPS, settings_type
from gpu_control_plane.controller import command as controller
from gpu_control_plane.doctor import release_test
from gpu_control_plane.installation import crds, declare, pod_security, runtime_undo, uninstall
from gpu_control_plane.local.errors import BuildFailed
from gpu_control_plane.rules.bypass_policy import BypassSettings, bypass_policies
from gpu_control_plane.settings import parse_timings, waiting_times, with_timings
from helm.chart import CHART, ELSEWHERE, NAMESPACE, VALUE_SETS, Helm, Objects, Refused, command_of, container
from helm.conftest import cannot
from helm.schemas import CRDS, VERSIONS, conforms, kubernetes_schemas, our_schemas

PROGRAMS = {
    "gpu_control_plane.console": console,
    "gpu_control_plane.controller": controller,
    "gpu_control_plane.agent": agent,
    "gpu_control_plane.doctor.release_test": release_test.command,
    "gpu_control_plane.installation.declare": declare.command,
    "gpu_control_plane.installation.crds": crds.command,
    "gpu_control_plane.installation.pod_security": pod_security.command,
    "gpu_control_plane.installation.runtime_undo": runtime_undo.command,
    "gpu_control_plane.installation.uninstall": uninstall.command,
}

every_value_set = pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS)


def _installed_in(folder: str, *, create: bool = True, driver: dict[str, Any] | None = None) -> dict[str, Any]:
    """A ClusterPolicy with the driver in a folder."""
    return {
        "clusterPolicy": {"create": create, "spec": {"driver": driver or {}, "hostPaths": {"driverInstallDir": folder}}}
    }


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    answer = helm.run("lint", "--strict", str(CHART))
    assert "[WARNING]" not in answer
    assert "[ERROR]" not in answer


def test_chart_and_program_are_released_together() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == gpu_control_plane.__version__


def test_the_image_is_the_one_that_is_built_here(helm: Helm) -> None:
    for _component, pod in helm.objects(VALUE_SETS["without-nfd"]).pods():
        assert container(pod)["image"] == NAME


def test_a_digest_takes_the_place_of_the_tag(helm: Helm) -> None:
    pod = helm.objects(VALUE_SETS["pinned"]).pod("agent")
    assert container(pod)["image"] == f"registry.example/gpu@sha256:{'0' * 64}"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_render_is_valid_for(version: str, helm: Helm, kubeconform: Path, tmp_path: Path) -> None:
    try:
        schemas = kubernetes_schemas(version)
    except BuildFailed as why:
        cannot(str(why))
        return
    for name, values in VALUE_SETS.items():
        (tmp_path / f"{name}.yaml").write_text(helm.template(values, version=version))
    conforms(kubeconform, schemas, tmp_path, *CRDS.glob("*.yaml"))


def test_schemas_refuse_what_kubernetes_would(kubeconform: Path, tmp_path: Path) -> None:
    """Otherwise the test above could not fail."""
    (tmp_path / "wrong.yaml").write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"prots": []}})
    )
    try:
        schemas = kubernetes_schemas(VERSIONS[-1])
    except BuildFailed as why:
        cannot(str(why))
        return
    with pytest.raises(AssertionError, match="prots"):
        conforms(kubeconform, schemas, tmp_path / "wrong.yaml")


def test_the_pool_in_the_notes_is_a_valid_one(kubeconform: Path, tmp_path: Path) -> None:
    notes = (CHART / "templates/NOTES.txt").read_text()
    manifest = notes.split("<<EOF")[1].split("EOF")[0]
    schemas = our_schemas(tmp_path)
    (tmp_path / "pool.yaml").write_text("\n".join(line.removeprefix("  ") for line in manifest.splitlines()))
    conforms(kubeconform, schemas, tmp_path / "pool.yaml")


def test_the_page_about_installing_leads_to_a_pod_of_its_pool(kubeconform: Path, tmp_path: Path) -> None:
    """The manifests that people copy from it are valid, and the pod asks for the pool that it may use."""
    page = (CHART.parents[1] / "docs/install.md").read_text()
    pool, pod = (each.split("\nEOF")[0] for each in page.split("<<EOF\n")[1:])
    try:
        schemas = kubernetes_schemas(VERSIONS[-1])
    except BuildFailed as why:
        cannot(str(why))
        return
    for name, text, folder in (("pool", pool, our_schemas(tmp_path)), ("pod", pod, schemas)):
        (tmp_path / f"{name}.yaml").write_text(text)
        conforms(kubeconform, folder, tmp_path / f"{name}.yaml")
    asked, offered = yaml.safe_load(pod), yaml.safe_load(pool)
    limits = asked["spec"]["containers"][0]["resources"]["limits"]
    assert list(limits) == [f"gpu.deckhouse.io/{offered['metadata']['name']}"]
    assert asked["metadata"]["namespace"] in offered["spec"]["access"]["namespaces"]


@every_value_set
def test_programs_understand_their_arguments(helm: Helm, values: dict[str, Any]) -> None:
    """Parsed by the programs themselves, as at their start."""
    for _component, pod in helm.objects(values).pods():
        python, alone, run, module, *arguments = command_of(pod)
        assert (python, alone, run) == ("python3", "-P", "-m")
        _parses(PROGRAMS[module], arguments)


@every_value_set
def test_only_the_agent_touches_the_node(helm: Helm, values: dict[str, Any]) -> None:
    for component, pod in helm.objects(values).pods():
        if component != "agent":
            # ConfigMaps and Secrets are objects of the API, not a part of the node.
            volumes = pod["spec"].get("volumes", [])
            assert all(volume.keys() <= {"name", "configMap", "secret"} for volume in volumes)
            assert pod["spec"]["securityContext"]["runAsNonRoot"]
            assert container(pod)["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container(pod)["securityContext"]["readOnlyRootFilesystem"]
        assert "hostNetwork" not in pod["spec"]


def test_the_agent_is_privileged_for_real_cards_only(helm: Helm) -> None:
    real = container(helm.objects().pod("agent"))["securityContext"]
    simulated = container(helm.objects(VALUE_SETS["simulated"]).pod("agent"))["securityContext"]
    assert real["privileged"]
    assert "privileged" not in simulated
    assert simulated["capabilities"] == {"drop": ["ALL"], "add": ["MKNOD"]}


def test_the_agent_configures_the_runtime_only_if_asked_and_undoes_it_otherwise(helm: Helm) -> None:
    off, on = helm.objects({"agent": {"hardware": "simulated"}}), helm.objects(VALUE_SETS["runtime"])
    assert "--undo-runtime" in command_of(off.pod("agent"))
    assert "privileged" not in container(off.pod("agent"))["securityContext"]
    options = {
        *("--configure-runtime", "--restart-runtime", "--default-runtime", "--runtime=containerd"),
        *("--runtime-config=/etc/containerd/site.toml", "--runtime-program=/opt/containerd/bin/containerd"),
        *("--runtime-unit=containerd-site", "--nvidia-runtime=/usr/bin/nvidia-container-runtime"),
    }
    assert options <= set(command_of(on.pod("agent")))
    assert "--undo-runtime" not in command_of(on.pod("agent"))


def test_an_uninstall_undoes_the_runtimes_configuration_before_the_reports_may_go(helm: Helm) -> None:
    """Also where the value has just been switched off: an agent may not have got to it."""
    off = {**VALUE_SETS["runtime"], "agent": {**VALUE_SETS["runtime"]["agent"], "runtime": {"configure": False}}}
    _check_undo(helm.objects(VALUE_SETS["runtime"]))
    _check_undo(helm.objects(off))
    assert "undo-runtime" not in dict(helm.objects({"cleanup": {"enabled": False}}).pods())


def _check_undo(objects: Objects) -> None:
    undo, cleanup = (objects.one("Job", f"gpu-control-plane-{name}") for name in ("undo-runtime", "cleanup"))
    weights = [int(job["metadata"]["annotations"]["helm.sh/hook-weight"]) for job in (undo, cleanup)]
    assert weights == sorted(weights)
    assert undo["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    command = command_of(undo["spec"]["template"])
    assert f"--image={container(objects.pod('agent'))['image']}" in command
    assert {"--pull-secret=registry", "--lenient"} <= set(command)


@pytest.mark.parametrize("kind", ["clusterPolicy", "nvidiaDriver"])
def test_an_object_may_be_declared_with_an_empty_spec(helm: Helm, kind: str) -> None:
    """Null takes the default of the chart away."""
    objects = helm.objects({"operator": {"enabled": True}, kind: {"create": True, "spec": None}})
    assert "declare" in dict(objects.pods())


def test_the_agent_sees_the_hosts_processes_only_if_asked(helm: Helm) -> None:
    assert helm.objects().pod("agent")["spec"]["hostPID"] is False
    pod = helm.objects(VALUE_SETS["labels"]).pod("agent")
    assert pod["spec"]["hostPID"] is True
    assert "/var/log/containers" in {mount["mountPath"] for mount in container(pod)["volumeMounts"]}


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        ("Avoid", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("Never", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("Allow", None),
    ],
)
def test_the_controller_stays_off_nodes_with_cards(helm: Helm, wish: str, kind: str | None) -> None:
    spec = helm.objects({"controller": {"gpuNodes": wish}}).pod("controller")["spec"]
    assert list(spec.get("affinity", {}).get("nodeAffinity", {})) == ([kind] if kind else [])
    assert ("gpu.deckhouse.io/gpu.present" in str(spec.get("affinity"))) is (kind is not None)


def test_by_default_the_controller_avoids_nodes_with_cards(helm: Helm) -> None:
    assert helm.objects().pod("controller")["spec"]["affinity"]["nodeAffinity"]


def test_the_names_of_pods_can_be_kept_out_of_the_metrics(helm: Helm) -> None:
    assert "--no-pod-names" not in container(helm.objects().pod("agent"))["args"]
    quiet = helm.objects({"agent": {"exporter": {"podNames": False}}}).pod("agent")
    assert "--no-pod-names" in container(quiet)["args"]


def test_the_agent_never_writes_to_the_hosts_files(helm: Helm) -> None:
    mounts = {mount["name"]: mount for mount in container(helm.objects().pod("agent"))["volumeMounts"]}
    assert mounts["host"]["readOnly"]


@pytest.mark.parametrize(
    ("values", "hosts", "containers"),
    [
        ({}, ["/host"], ["/host/run/nvidia/driver"]),
        ({"agent": {"driverRoots": ["/opt/nvidia/"]}}, ["/host/opt/nvidia"], ["/host/run/nvidia/driver"]),
        ({"agent": {"containerDriverRoots": ["/opt/driver"]}}, ["/host"], ["/host/opt/driver"]),
        (_installed_in("/opt/driver"), ["/host"], ["/host/run/nvidia/driver", "/host/opt/driver"]),
        (_installed_in("/run/nvidia/driver"), ["/host"], ["/host/run/nvidia/driver"]),
        (_installed_in(""), ["/host"], ["/host/run/nvidia/driver"]),
        (
            _installed_in("/home/kubernetes/bin/nvidia", driver={"enabled": False}),
            ["/host", "/host/home/kubernetes/bin/nvidia"],
            ["/host/run/nvidia/driver"],
        ),
        (_installed_in("/opt/driver", create=False), ["/host"], ["/host/run/nvidia/driver"]),
    ],
)
def test_drivers_are_looked_for_on_the_host_and_where_the_policy_puts_containers(
    helm: Helm, values: dict[str, Any], hosts: list[str], containers: list[str]
) -> None:
    """A driver of a container that is taken for the host's would keep driver containers away from the node."""
    given = [each.partition("=") for each in container(helm.objects(values).pod("agent"))["args"]]
    assert [place for option, _, place in given if option == "--driver-root"] == hosts
    assert [place for option, _, place in given if option == "--container-driver-root"] == containers


def test_the_agent_gets_the_resources_of_other_plugins(helm: Helm) -> None:
    arguments = container(helm.objects(VALUE_SETS["simulated"]).pod("agent"))["args"]
    given = [each.partition("=")[2] for each in arguments if each.startswith("--conflicting-resource=")]
    assert given == ["nvidia.com/a100", "nvidia.com/team-"]


def test_the_controller_gets_the_namespaces_of_node_feature_discovery(helm: Helm) -> None:
    def arguments(values: dict[str, Any]) -> list[str]:
        arguments = container(helm.objects(values).pod("controller"))["args"]
        return [each for each in arguments if each.startswith("--nfd")]

    assert arguments({}) == []
    assert arguments(VALUE_SETS["one-replica"]) == ["--nfd-namespace=hardware", "--nfd-namespace=nfd"]


def test_the_controller_and_the_clean_up_get_the_namespaces_of_nvidias_operator(helm: Helm) -> None:
    def given(values: dict[str, Any]) -> list[list[str]]:
        objects = helm.objects(values)
        commands = container(objects.pod("controller"))["args"], container(objects.pod("cleanup"))["command"]
        return [[each for each in command if each.startswith("--nvidia")] for command in commands]

    assert given({}) == [[], []]
    assert given(VALUE_SETS["one-replica"]) == [["--nvidia-namespace=infra", "--nvidia-namespace=monitoring"]] * 2


def test_the_clean_up_is_told_where_ray_was_looked_after(helm: Helm) -> None:
    told = {
        name: [word for word in command_of(helm.objects(VALUE_SETS[name]).pod("cleanup")) if "ray" in word]
        for name in ("default", "ray-everywhere", "ray", "ray-alone")
    }
    assert told == {
        "default": ["--no-ray"],
        "ray-everywhere": [],
        "ray": [
            "--ray-watch-namespace=research",
            "--ray-watch-namespace=serving",
            "--kuberay-namespace=default",
        ],
        "ray-alone": ["--ray-watch-namespace=research", "--ray-single-namespace"],
    }


def test_waiting_times_reach_the_controller_as_it_reads_them(helm: Helm) -> None:
    values = {"controller": {"timings": {"inventory": {"nodeGracePeriod": "30m"}}}}
    arguments = container(helm.objects(values).pod("controller"))["args"]
    given = [each.removeprefix("--timing=") for each in arguments if each.startswith("--timing=")]
    found = parse_timings(given, TIMING_GROUPS)
    settings = with_timings(settings_type("inventory")(), found["inventory"])
    assert settings == settings_type("inventory")(node_grace_period=timedelta(minutes=30))
    for group in TIMING_GROUPS:
        assert found[group].keys() == {one.name for one in waiting_times(settings_type(group))}


def test_waiting_times_reach_the_agent_as_it_reads_them(helm: Helm) -> None:
    arguments = container(helm.objects({"agent": {"timings": {"health": {"recoveryPeriod": "5m"}}}}).pod("agent"))[
        "args"
    ]
    given = [each.removeprefix("--timing=") for each in arguments if each.startswith("--timing=")]
    assert health_timings(given) == HealthTimings(recovery_period=timedelta(minutes=5))


def test_the_controller_gets_the_label_of_managed_nodes(helm: Helm) -> None:
    def arguments(**values: object) -> list[str]:
        arguments = container(helm.objects({"managedNodes": values}).pod("controller"))["args"]
        return [each for each in arguments if "managed" in each]

    assert arguments() == ["--managed-label=gpu.deckhouse.io/enabled"]
    assert arguments(labelKey="example.com/gpu", enabledByDefault=False) == [
        "--managed-label=example.com/gpu",
        "--not-managed-by-default",
    ]


def test_the_webhook_can_be_kept_for_api_servers(helm: Helm) -> None:
    def policies(**webhook: Any) -> list[dict[str, Any]]:
        return helm.objects({"webhook": webhook}).of("NetworkPolicy")

    peers = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    assert policies() == policies(enabled=False, networkPolicy={"from": peers}) == []
    (policy,) = policies(networkPolicy={"from": peers})
    everybody, api_servers = policy["spec"]["ingress"]
    assert everybody == {"ports": [{"port": "metrics"}]}
    assert api_servers == {"ports": [{"port": "webhook"}], "from": peers}


def test_the_budget_exists_with_several_replicas_only(helm: Helm) -> None:
    assert helm.objects().of("PodDisruptionBudget")
    assert not helm.objects(VALUE_SETS["one-replica"]).of("PodDisruptionBudget")


@every_value_set
def test_rights_are_never_wildcards(helm: Helm, values: dict[str, Any]) -> None:
    for role in helm.objects(values).of("Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_templates_leave_to_one_file_what_differs_between_platforms() -> None:
    """The Deckhouse module has the same templates, and a file of its own for these helpers."""
    for file in CHART.glob("templates/**/*"):
        if file.is_dir() or file.name == "_platform.tpl":
            continue
        text = file.read_text()
        for literal in ("securityContext:", "image:", "imagePullSecrets:", "priorityClassName:", ".Release.Namespace"):
            assert literal not in text, f"{file.name} says {literal} itself: ask a helper of _platform.tpl"
        assert file.suffix == ".tpl" or "{{- define" not in text, f"{file.name} defines: move that to a .tpl"


def test_every_right_has_its_reason() -> None:
    """A comment above each rule."""
    for file in CHART.glob("templates/**/*.yaml"):
        lines = [line.strip() for line in file.read_text().splitlines() if "{{-" not in line]
        for above, line in itertools.pairwise(lines):
            if line.startswith("- apiGroups") and "rbac" in file.name:
                assert above.startswith("#") or _commented_role(lines, line), f"{file.name}: {line} after {above}"


@every_value_set
def test_everything_is_labelled_and_in_its_place(helm: Helm, values: dict[str, Any]) -> None:
    operands = values.get("operator", {}).get("namespace", NAMESPACE)
    of_ray = values.get("ray", {}).get("watchNamespace", ())
    for each in helm.objects(values).all:
        assert each["metadata"]["labels"]["app.kubernetes.io/name"] == "gpu-control-plane"
        assert each["metadata"].get("namespace", NAMESPACE) in (NAMESPACE, "default", operands, *of_ray)


@every_value_set
def test_in_another_namespace_nothing_names_the_default(helm: Helm, values: dict[str, Any]) -> None:
    """Everything else is the same: a name that was forgotten would be found nowhere, or in the wrong place."""
    monitored = {**values, "monitoring": {"prometheusRules": {"enabled": True}}}
    there = helm.template(monitored, namespace=ELSEWHERE)
    assert NAMESPACE not in there
    assert there == helm.template(monitored).replace(NAMESPACE, ELSEWHERE)


@every_value_set
def test_every_program_is_told_its_namespace(helm: Helm, values: dict[str, Any]) -> None:
    for component, pod in helm.objects(values, namespace=ELSEWHERE).pods():
        if component in ("controller", "agent", "discovery", "console", "install-crds", "cleanup"):
            assert f"--namespace={ELSEWHERE}" in command_of(pod), component


def test_beside_nvidias_operator_its_namespace_is_exempt_once(helm: Helm) -> None:
    rendered = helm.objects(namespace="gpu-operator")
    for policy in bypass_policies(BypassSettings(namespace="gpu-operator")):
        assert rendered.one(policy["kind"], policy["metadata"]["name"])["spec"] == policy["spec"]


@pytest.mark.parametrize("namespace", ["default", "kube-public"])
def test_a_namespace_that_everybody_shares_is_refused_with_what_to_do(helm: Helm, namespace: str) -> None:
    with pytest.raises(Refused, match=f"needs a namespace of its own, and {namespace} is for everybody: add -n "):
        helm.template(namespace=namespace)


def test_operands_run_in_none_of_them_either(helm: Helm) -> None:
    with pytest.raises(Refused, match=r"operator\.namespace: operands are privileged, and default is for everybody"):
        helm.template({"operator": {"namespace": "default"}})


def test_an_old_cluster_is_refused(helm: Helm) -> None:
    with pytest.raises(Refused, match=r"requires kubeVersion: >=1\.32\.0-0"):
        helm.template(version="v1.31.0")


def _parses(program: click.Command, arguments: list[str]) -> None:
    with program.make_context("program", list(arguments)):
        pass


def _commented_role(lines: list[str], line: str) -> bool:
    """The reason of a role with one rule may stand above the role."""
    start = max(index for index, each in enumerate(lines[: lines.index(line)]) if each == "---")
    return lines[start + 1].startswith("#")
