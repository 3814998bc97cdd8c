"""What the module renders in Deckhouse: the chart's objects, with what Deckhouse wants of pods."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from release.module import CHART, MODULE
from release.source import PROJECT

from gpu_control_plane.local.errors import BuildFailed
from helm.chart import NAMESPACE, Helm, Manifest, Refused, command_of, container
from helm.conftest import cannot
from helm.deckhouse.module import EVERY_PROGRAM, SETTING_SETS, Module, Settings
from helm.installed import Installed
from helm.schemas import VERSIONS, conforms, kubernetes_schemas

FOREIGN = {
    "Certificate",
    "DexAuthenticator",
    "GrafanaDashboardDefinition",
    "NodeFeatureRule",
    "OperationPolicy",
    "PodMonitor",
    "PrometheusRule",
    "SecurityPolicy",
    "ServiceMonitor",
}
"""Kinds that come with Deckhouse and are not Kubernetes' own."""
ON_GPU_NODES = ("agent", "gpu-feature-discovery", "dcgm", "dcgm-exporter", "validator")

every_setting_set = pytest.mark.parametrize("settings", SETTING_SETS.values(), ids=SETTING_SETS)


def native(module: Module, settings: Settings) -> list[Manifest]:
    return [each for each in module.objects(settings).all if each["kind"] not in FOREIGN]


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_every_render_is_valid_for(version: str, module: Module, kubeconform: Path, tmp_path: Path) -> None:
    try:
        schemas = kubernetes_schemas(version)
    except BuildFailed as why:
        cannot(str(why))
        return
    for name, settings in SETTING_SETS.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(native(module, settings)))
    conforms(kubeconform, schemas, tmp_path)


@every_setting_set
def test_the_api_server_takes_every_render(module: Module, api_server: Installed, settings: Settings) -> None:
    ask = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--field-manager=test", "-f", "-")
    objects = native(module, settings)
    assert len(api_server.kubectl(*ask, given=yaml.safe_dump_all(objects)).splitlines()) == len(objects)


def test_all_but_programs_for_cards_pass_the_restricted_standard(module: Module, api_server: Installed) -> None:
    """Judged by the API server's own Pod Security admission."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "of-deckhouse", "labels": labels}})
    for component, pod in module.objects(SETTING_SETS["console"]).pods():
        spec = {**pod["spec"], "serviceAccountName": "default", "priorityClassName": ""}
        given = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": component}, "spec": spec})
        ask = ("-n", "of-deckhouse", "create", "--dry-run=server", "-f", "-")
        if component == "agent":
            with pytest.raises(AssertionError, match="violates PodSecurity"):
                api_server.kubectl(*ask, given=given)
        else:
            api_server.kubectl(*ask, given=given)


def test_without_settings_the_same_objects_come_as_from_the_chart(module: Module, helm: Helm) -> None:
    """But for what Deckhouse has in other ways: its own templates, monitors that it scrapes by default, and container
    runtimes that agents never configure there."""
    chart = helm.objects({"discovery": {"enabled": True}, "operator": {"enabled": False}})
    ours = {(each["kind"], each["metadata"]["name"]) for each in module.objects({"highAvailability": True}).all}
    theirs = {
        (each["kind"], each["metadata"]["name"])
        for each in chart.all
        if each["metadata"]["labels"]["app.kubernetes.io/component"] not in ("test", "undo-runtime")
    }
    assert theirs <= ours
    extra = {kind for kind, _name in ours - theirs}
    assert extra == FOREIGN - {"Certificate", "DexAuthenticator", "NodeFeatureRule"} | {
        "ClusterRole",
        "Namespace",
        "Secret",
    }


@every_setting_set
def test_programs_are_started_as_by_the_chart(module: Module, helm: Helm, settings: Settings) -> None:
    """The module's settings reach programs by the chart's own templates."""
    pods = dict(module.objects(settings).pods())
    theirs = dict(helm.objects({"discovery": {"enabled": True}}).pods())
    for component in pods.keys() & theirs.keys():
        assert command_of(pods[component])[:4] == command_of(theirs[component])[:4]


def test_images_come_from_the_modules_registry_by_digest(module: Module) -> None:
    images = {
        component: {each["image"] for each in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]}
        for component, pod in module.objects({"bootstrap": EVERY_PROGRAM, "console": {"enabled": True}}).pods()
    }
    base = "registry.example.com/modules/gpu-control-plane@sha256"
    assert images == {
        "controller": {f"{base}:controller"},
        "console": {f"{base}:controller"},
        "install-crds": {f"{base}:controller"},
        "cleanup": {f"{base}:controller"},
        "agent": {f"{base}:agent"},
        "discovery": {f"{base}:agent"},
        "gpu-feature-discovery": {f"{base}:gfd"},
        "dcgm": {f"{base}:dcgm"},
        "dcgm-exporter": {f"{base}:dcgmExporter"},
        "validator": {f"{base}:validator"},
    }


def test_an_image_that_was_not_built_is_named(module: Module) -> None:
    missing = {"modulesImages": {"digests": {"gpuControlPlane": {"gfd": ""}}}}
    module.render({}, missing)
    with pytest.raises(Refused, match=r"Image gpuControlPlane\.gfd has no digest"):
        module.render({"bootstrap": {"gfd": {"enabled": True}}}, missing)


def test_every_pod_can_open_the_registry(module: Module) -> None:
    objects = module.objects(SETTING_SETS["nvidias-programs"])
    secret = objects.one("Secret", "gpu-control-plane-registry")
    assert secret["data"] == {".dockerconfigjson": "e30="}
    for _component, pod in objects.pods():
        assert pod["spec"]["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]


def test_programs_for_cards_go_where_the_agent_goes(module: Module) -> None:
    objects = module.objects(SETTING_SETS["nvidias-programs"])
    agent = objects.pod("agent")["spec"]
    assert agent["tolerations"] == [{"operator": "Exists"}]
    for component in ON_GPU_NODES:
        spec = objects.pod(component)["spec"]
        assert [spec[part] for part in ("affinity", "nodeSelector", "tolerations")] == [
            agent[part] for part in ("affinity", "nodeSelector", "tolerations")
        ]
        assert spec["securityContext"] == {"runAsNonRoot": False, "runAsUser": 0, "runAsGroup": 0}


@pytest.mark.parametrize("program", EVERY_PROGRAM)
def test_nvidias_programs_run_with_nvidias_runtime_which_no_node_has_by_default(module: Module, program: str) -> None:
    """Bring-up gives nodes the runtime under this name (containerd-v1.sh, containerd-v2.sh)."""
    objects = module.objects({"bootstrap": {program: {"enabled": True}}})
    [runtime_class] = objects.of("RuntimeClass")
    assert runtime_class["handler"] == "nvidia"
    for component, pod in objects.pods():
        assert (component in ON_GPU_NODES[1:]) == (
            pod["spec"].get("runtimeClassName") == runtime_class["metadata"]["name"]
        )
    scripts = PROJECT / "src/gpu_control_plane/deckhouse/scripts"
    for script in scripts.glob("containerd-v*.sh"):
        assert f".containerd.runtimes.{runtime_class['handler']}]" in script.read_text()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bootstrap": {"gfd": {"enabled": True}, "runtimeClass": {"create": False}}},
        {"bootstrap": {"gfd": {"enabled": True}, "runtimeClassName": "own"}},
        {"bootstrap": {"gfd": {"enabled": True}}, "operator": {"enabled": True}},
    ],
    ids=["unneeded", "switched-off", "another", "brought-by-a-ClusterPolicy"],
)
def test_a_runtime_class_of_somebody_else_is_left_alone(module: Module, settings: Settings) -> None:
    assert not module.objects(settings).of("RuntimeClass")


@pytest.mark.parametrize("engine", [True, False])
def test_every_program_that_needs_cards_is_one_that_nvidias_runtime_heeds(module: Module, engine: bool) -> None:
    """Bring-up has it heed those with SYS_ADMIN only (install-driver-finish.sh). The exporter ends without NVML."""
    objects = module.objects({"bootstrap": {**EVERY_PROGRAM, "dcgm": {"enabled": engine}}})
    for component, pod in objects.pods():
        for each in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            if any(variable["name"] == "NVIDIA_VISIBLE_DEVICES" for variable in each.get("env", [])):
                context = each["securityContext"]
                added = context.get("capabilities", {}).get("add", [])
                assert context.get("privileged") or "SYS_ADMIN" in added, component


def test_placement_is_asked_for_never_said() -> None:
    """By gpuControlPlane.managedNode*, so that no DaemonSet has taints of its own."""
    for path in [*CHART.glob("templates/agent/*"), *CHART.glob("templates/bootstrap/*")]:
        lines = path.read_text().splitlines()
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            if re.fullmatch(r"\s*(affinity|nodeSelector|tolerations):", line):
                assert 'include "gpuControlPlane.managedNode' in following, f"{path.name}: {line.strip()}"


def test_opting_in_takes_nodes_by_their_label(module: Module) -> None:
    terms = module.objects(SETTING_SETS["opt-in"]).pod("agent")["spec"]["affinity"]["nodeAffinity"]
    for term in terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]:
        assert {"key": "gpu.example.com/managed", "operator": "In", "values": ["true"]} in term["matchExpressions"]


@pytest.mark.parametrize(
    ("settings", "cluster", "replicas"),
    [
        ({}, {}, 1),
        ({}, {"discovery": {"clusterControlPlaneIsHighlyAvailable": True}}, 2),
        ({}, {"highAvailability": True}, 2),
        ({"highAvailability": False}, {"highAvailability": True}, 1),
        ({"highAvailability": True}, {}, 2),
    ],
)
def test_there_are_two_controllers_where_high_availability_is_wanted(
    module: Module, settings: Settings, cluster: dict[str, Any], replicas: int
) -> None:
    objects = module.objects(settings, cluster)
    assert objects.one("Deployment", "gpu-control-plane-controller")["spec"]["replicas"] == replicas
    assert len(objects.of("PodDisruptionBudget")) == replicas - 1


def test_controllers_go_to_system_nodes_where_there_are_any(module: Module) -> None:
    def placed(cluster: dict[str, Any]) -> Manifest:
        spec: Manifest = module.objects({}, cluster).pod("controller")["spec"]
        return spec

    assert "nodeSelector" not in placed({})
    on_system = placed({"discovery": {"d8SpecificNodeCountByRole": {"system": 2}}})
    assert on_system["nodeSelector"] == {"node-role.deckhouse.io/system": ""}
    assert {"key": "dedicated.deckhouse.io", "operator": "Equal", "value": "system"} in on_system["tolerations"]


@every_setting_set
def test_everything_is_in_the_modules_namespace(module: Module, settings: Settings) -> None:
    """Whatever the release's: Deckhouse keeps that in d8-system."""
    for each in module.objects(settings).all:
        where = each["metadata"].get("namespace", NAMESPACE)
        monitors = each["kind"] in ("ServiceMonitor", "PodMonitor")
        of_ray = settings.get("ray", {}).get("watchNamespace", ())
        assert where in ("d8-monitoring" if monitors else NAMESPACE, "default", *of_ray)
        assert each["metadata"]["labels"]["module"] == "gpu-control-plane"


def test_our_own_programs_may_write_what_they_have_to(module: Module) -> None:
    """Deckhouse refuses changes of objects with `heritage: deckhouse` to all but itself."""
    for each in module.objects(SETTING_SETS["console"]).all:
        ours = "app.kubernetes.io/name" in each["metadata"]["labels"]
        assert ("heritage" in each["metadata"]["labels"]) != ours


def test_jobs_find_their_namespace_and_their_image(module: Module) -> None:
    """The release brings the namespace, so no job may come before it; both stay for the one that comes after."""
    objects = module.objects({})
    hooks = {each["metadata"]["name"]: each["metadata"]["annotations"]["helm.sh/hook"] for each in objects.of("Job")}
    assert hooks == {
        "gpu-control-plane-install-crds": "post-install,post-upgrade",
        "gpu-control-plane-cleanup": "post-delete",
    }
    for kind, name in (("Namespace", NAMESPACE), ("Secret", "gpu-control-plane-registry")):
        assert objects.one(kind, name)["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_deckhouses_prometheus_finds_our_monitors(module: Module) -> None:
    objects = module.objects({"bootstrap": {"dcgmExporter": {"enabled": True}}, "console": {"enabled": True}})
    monitors = objects.of("ServiceMonitor", "PodMonitor")
    assert {each["metadata"]["name"] for each in monitors} == {
        f"gpu-control-plane-{part}" for part in ("agent", "console", "controller", "dcgm-exporter")
    }
    for each in monitors:
        assert each["metadata"]["labels"]["prometheus"] == "main"
        assert each["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}


def test_the_exporters_monitor_has_labels_and_annotations_of_ones_own(module: Module) -> None:
    own = {"labels": {"team": "gpu"}, "annotations": {"example.com/note": "cards"}}
    settings = {"bootstrap": {"dcgmExporter": {"enabled": True, "serviceMonitor": own}}}
    metadata = module.objects(settings).one("ServiceMonitor", "gpu-control-plane-dcgm-exporter")["metadata"]
    assert metadata["labels"].items() >= {"team": "gpu", "prometheus": "main"}.items()
    assert metadata["annotations"].items() >= own["annotations"].items()
    assert not module.objects(settings | {"monitoring": {"serviceMonitor": False}}).of("ServiceMonitor", "PodMonitor")


def test_nodes_choose_their_configuration_of_feature_discovery(module: Module) -> None:
    chosen = {"gfd": {"enabled": True, "config": "configurations", "defaultConfig": "mixed"}}
    spec = module.objects({"bootstrap": chosen}).pod("gpu-feature-discovery")["spec"]
    assert {"name": "available-configs", "configMap": {"name": "configurations"}} in spec["volumes"]
    managers = [*spec["initContainers"], *(each for each in spec["containers"] if each["name"] == "config-manager")]
    assert len(managers) == 2
    for each in managers:
        assert {"name": "DEFAULT_CONFIG", "value": "mixed"} in each["env"]


def test_the_console_is_behind_deckhouses_sign_in(module: Module) -> None:
    objects = module.objects(SETTING_SETS["console"])
    ingress = objects.one("Ingress", "gpu-control-plane-console")
    assert ingress["spec"]["tls"] == [{"hosts": ["gpu.example.com"], "secretName": "gpu-console-tls"}]
    dex = objects.one("DexAuthenticator", "gpu-console")["spec"]
    assert (dex["applicationDomain"], dex["allowedGroups"]) == ("gpu.example.com", ["gpu-admins"])
    certificate = objects.one("Certificate", "gpu-console")["spec"]
    assert certificate["secretName"] == "gpu-console-tls"
    assert certificate["issuerRef"] == {"kind": "ClusterIssuer", "name": "letsencrypt"}


def test_the_console_follows_the_clusters_domain(module: Module) -> None:
    objects = module.objects(SETTING_SETS["console"], {"discovery": {"clusterDomain": "corp.example"}})
    asked = objects.one("Ingress", "gpu-control-plane-console")["metadata"]["annotations"]
    assert ".svc.corp.example/" in asked["nginx.ingress.kubernetes.io/auth-url"]


def test_a_console_without_certificate_is_refused(module: Module) -> None:
    cluster = {"modules": {"https": {"mode": "OnlyInURI"}}}
    with pytest.raises(Refused, match=r"name its Secret in console\.tlsSecretName"):
        module.render(SETTING_SETS["console"], cluster)
    given = module.objects({"console": {"enabled": True, "tlsSecretName": "own"}}, cluster)
    assert not given.of("Certificate")
    assert given.one("Ingress", "gpu-control-plane-console")["spec"]["tls"][0]["secretName"] == "own"


def test_pods_are_resized_where_deckhouse_does_that(module: Module) -> None:
    assert not module.objects({}).of("VerticalPodAutoscaler")
    resized = module.objects({}, {"enabledModules": ["vertical-pod-autoscaler"]}).of("VerticalPodAutoscaler")
    assert {each["spec"]["targetRef"]["name"] for each in resized} == {
        f"gpu-control-plane-{part}" for part in ("agent", "controller", "discovery")
    }


def test_levels_of_access_are_those_of_deckhouse(module: Module) -> None:
    roles = {
        each["metadata"]["name"]: each["metadata"]["annotations"]["user-authz.deckhouse.io/access-level"]
        for each in module.objects({}).of("ClusterRole")
        if each["metadata"]["name"].startswith("d8:user-authz:")
    }
    assert roles == {
        "d8:user-authz:gpu-control-plane:user": "User",
        "d8:user-authz:gpu-control-plane:editor": "Editor",
        "d8:user-authz:gpu-control-plane:cluster-editor": "ClusterEditor",
        "d8:user-authz:gpu-control-plane:cluster-admin": "ClusterAdmin",
    }


def test_administrators_may_do_what_the_charts_role_lets_them(module: Module) -> None:
    objects = module.objects({})
    admin = objects.one("ClusterRole", "gpu-admin")["rules"]
    assert objects.one("ClusterRole", "d8:user-authz:gpu-control-plane:cluster-admin")["rules"] == admin
    edit = objects.one("ClusterRole", "d8:manage:permission:module:gpu-control-plane:edit")["rules"]
    assert [rule for rule in edit if rule["apiGroups"] != ["deckhouse.io"]] == admin


def test_two_programs_for_one_purpose_are_refused(module: Module) -> None:
    """By the chart's own rule: the agent gives way, unless it is told not to."""
    arguments = container(module.objects({"bootstrap": EVERY_PROGRAM}).pod("agent"))["args"]
    assert {"--no-exporter", "--no-validator"} <= set(arguments)


def test_both_platforms_have_the_same_helpers() -> None:
    defined = [
        set(re.findall(r'define "([^"]+)"', (folder / "templates/_platform.tpl").read_text()))
        for folder in (CHART, MODULE)
    ]
    assert defined[0] == defined[1]
