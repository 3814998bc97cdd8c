"""Applications from values of the upstream charts: each key goes somewhere, or is refused by its name."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpu_control_plane.cli.main import commands
from gpu_control_plane.gitops import applications
from gpu_control_plane.gitops.applications import NFD_VERSION, Source
from gpu_control_plane.gitops.kuberay import ROWS, mapping_table, refused_keys, translate
from gpu_control_plane.gitops.refusals import UnsupportedKeys
from gpu_control_plane.gitops.render import Inputs, ValuesFile, render
from gpu_control_plane.local.versions import NFD
from gpu_control_plane.operator.migration.values import BadValues

EXAMPLE = Path(__file__).parents[3] / "examples/gitops"
SOURCE = Source(
    registry="registry.example.com/gpu", repository="https://git.example.com/infra.git", path="clusters/prod"
)
ARGUMENTS = (
    *("gitops", "render", "--registry", SOURCE.registry, "--repository", SOURCE.repository, "--path", SOURCE.path),
    *("--gpu-operator", str(EXAMPLE / "gpu-operator/ap-values.yaml")),
    *("--kuberay", str(EXAMPLE / "kuberay-operator/ap-values.yaml")),
)


def rendered(**inputs: Any) -> dict[str, dict[str, Any]]:
    """The Applications by their names."""
    ignored = frozenset(inputs.pop("ignored", ()))
    keep = inputs.pop("keep_kuberay", False)
    files = {name: ValuesFile(f"{name}.yaml", values) for name, values in inputs.items()}
    made = render(Inputs(**files, ignored=ignored, keep_kuberay=keep), SOURCE)
    return {each["metadata"]["name"]: each for each in map(yaml.safe_load, made.values())}


def values_of(application: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = application["spec"]["source"].get("helm", {}).get("valuesObject", {})
    return found


def test_the_committed_example_is_what_its_values_say() -> None:
    checked = CliRunner().invoke(commands, [*ARGUMENTS, "--check", str(EXAMPLE / "argocd")])
    assert checked.exit_code == 0, checked.output


def test_keys_of_the_gpu_operator_reach_the_cluster_policy() -> None:
    given = {
        "driver": {"enabled": False},
        "mig": {"strategy": "mixed"},
        "devicePlugin": {"enabled": False},
        "dcgm": {"enabled": True},
        "dcgmExporter": {"enabled": False},
    }
    spec = values_of(rendered(gpu_operator=given)["gpu-control-plane"])["clusterPolicy"]["spec"]
    assert {name: spec[name]["enabled"] for name in given if name != "mig"} == {
        "driver": False,
        "devicePlugin": False,
        "dcgm": True,
        "dcgmExporter": False,
    }
    assert spec["mig"]["strategy"] == "mixed"


def test_our_own_values_win() -> None:
    ours = {"image": {"repository": "elsewhere/gpu"}, "managedNodes": {"enabledByDefault": True}}
    values = values_of(rendered(gpu_operator={}, ours=ours)["gpu-control-plane"])
    assert values["image"]["repository"] == "elsewhere/gpu"
    assert values["managedNodes"] == {"enabledByDefault": True}
    assert values["operator"]["enabled"] is True


def test_node_feature_discovery_comes_by_its_own_chart() -> None:
    given = {"nfd": {"enabled": True}, "node-feature-discovery": {"worker": {"hostNetwork": True}}}
    made = rendered(gpu_operator=given)["node-feature-discovery"]
    assert values_of(made) == {"worker": {"hostNetwork": True}}
    assert "node-feature-discovery" not in rendered(gpu_operator={"nfd": {"enabled": False}})
    assert f"v{NFD_VERSION}" == NFD.version


def test_without_upstream_values_there_is_our_agent_alone() -> None:
    made = rendered()
    assert made.keys() == {"gpu", "gpu-control-plane", "gpu-pools"}
    assert values_of(made["gpu-control-plane"])["discovery"] == {"enabled": True}


def test_keys_without_effect_are_refused_by_name_and_all_at_once() -> None:
    operator = {"drivr": {"enabled": True}, "extraObjects": [{"kind": "ConfigMap"}], "driver": {"colour": "green"}}
    with pytest.raises(UnsupportedKeys) as refused:
        rendered(gpu_operator=operator, kuberay={"watchNamespaces": ["a"]})
    named = {(key.file, key.key) for key in refused.value.keys}
    ours = {("gpu_operator.yaml", key) for key in ("drivr", "extraObjects", "driver.colour")}
    assert named == ours | {("kuberay.yaml", "watchNamespaces")}
    assert "gpu_operator.yaml: drivr: Neither chart has such a value." in str(refused.value)


def test_values_that_no_cluster_policy_takes_are_refused_all_at_once() -> None:
    given = {"mig": {"strategy": "singel"}, "driver": {"enabled": "yes"}}
    with pytest.raises(BadValues) as refused:
        rendered(gpu_operator=given, ignored=["mig.strategy"])
    assert sorted(str(refused.value).splitlines()) == [
        "gpu_operator.yaml: driver.enabled: a boolean is needed here, and this is 'yes'.",
        "gpu_operator.yaml: mig.strategy: singel is none of none, single, mixed.",
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"nfd: {enabled: 'false'}", "nfd.enabled: a boolean is needed here, and this is 'false'."),
        (b"node-feature-discovery: []", "node-feature-discovery: this should be a map"),
        (b"driver:", "ap-values.yaml: driver is missing."),
        (b"driver: {enabled: true}\ndriver: {enabled: false}", "Line 2: driver was there in line 1"),
        (b"driver: \xff", "This is no text in UTF-8, line 1"),
        (b"[a]", "ap-values.yaml holds no values"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_a_sentence(text: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "ap-values.yaml").write_bytes(text)
    arguments = [*ARGUMENTS, "--gpu-operator", str(tmp_path / "ap-values.yaml"), str(tmp_path / "clusters")]
    ran = CliRunner().invoke(commands, arguments)
    assert (ran.exit_code, sentence in ran.output) == (1, True), ran.output
    assert not (tmp_path / "clusters").exists()


@pytest.mark.parametrize("nfd", [None, {}, {"enabled": None}, {"enabled": True}])
def test_nothing_said_of_node_feature_discovery_means_that_it_comes(nfd: object) -> None:
    assert "node-feature-discovery" in rendered(gpu_operator={"nfd": nfd})


def test_a_person_may_leave_a_key_out() -> None:
    assert rendered(gpu_operator={"extraObjects": [{"kind": "ConfigMap"}]}, ignored=["extraObjects"])


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"batchScheduler": {"name": "default"}}, "batchScheduler.name"),
        ({"batchScheduler": {"name": "volcano", "enabled": True}}, "batchScheduler.enabled"),
        ({"batchScheduler": {"queue": "a"}}, "batchScheduler.queue"),
        ({"batchScheduler": "volcano"}, "batchScheduler"),
        ({"configuration": "abc"}, "configuration"),
        ({"configuration": ["abc"]}, "configuration"),
        ({"watchNamespace": "research"}, "watchNamespace"),
        ({"singleNamespaceInstall": True, "watchNamespace": ["a", "b"]}, "singleNamespaceInstall"),
        ({"env": [{"name": "ENABLE_INIT_CONTAINERS", "value": "true"}]}, "env.ENABLE_INIT_CONTAINERS"),
        ({"env": {"ENABLE_WEBHOOKS": "true"}}, "env"),
        ({"ressources": {"limits": {}}}, "ressources"),
        ({"batchScheduler": {"name": "volcano", "queue": "a"}}, "batchScheduler.queue"),
        ({"singleNamespaceInstall": True}, "singleNamespaceInstall"),
        ({"leaderElectionEnabled": False}, "leaderElectionEnabled"),
        ({"rbacEnable": False}, "rbacEnable"),
        ({"env": [{"name": "ENABLE_WEBHOOKS", "value": "true"}]}, "env.ENABLE_WEBHOOKS"),
        ({"env": [{"name": "CLUSTER_DOMAIN", "valueFrom": {}}]}, "env.CLUSTER_DOMAIN"),
        ({"featureGates": [{"name": "KubernetesWAS", "enabled": True}]}, "featureGates.KubernetesWAS"),
        ({"featureGates": [{"name": "RayCronJob", "enabled": False}]}, "featureGates.RayCronJob"),
        ({"featureGates": [{"name": "RayCron", "enabled": True}]}, "featureGates.RayCron"),
        ({"image": {"tag": "v1.7.0"}}, "image"),
        ({"replicas": 2}, "replicas"),
        ({"metrics": {"serviceMonitor": {"honorLabels": False}}}, "metrics.serviceMonitor.honorLabels"),
        ({"env": [{"name": "ENABLE_LOGIN_SHELL", "value": "1"}]}, "env.ENABLE_LOGIN_SHELL"),
        (
            {"env": [{"name": "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "value": "5m"}]},
            "env.RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS",
        ),
    ],
)
def test_values_with_which_kuberay_would_not_do_what_is_meant_are_refused(given: dict[str, Any], key: str) -> None:
    assert [each.key for each in refused_keys(given, "values.yaml")] == [key]


SERVICE_MONITOR = {
    "enabled": True,
    "interval": "15s",
    "honorLabels": True,
    "additionalLabels": {"release": "prometheus"},
}


def test_the_keys_of_kuberay_become_values_of_ours() -> None:
    given = {
        "watchNamespace": ["research"],
        "singleNamespaceInstall": True,
        "leaderElectionEnabled": True,
        "batchScheduler": {"enabled": True},
        "useKubernetesProxy": True,
        "configuration": {"enabled": True, "defaultPodLabels": {"team": "ray"}},
        "metrics": {"enabled": True, "serviceMonitor": SERVICE_MONITOR},
        "featureGates": [{"name": "RayCronJob", "enabled": True}, {"name": "KubernetesWAS", "enabled": False}],
        "env": [
            {"name": "ENABLE_PROBES_INJECTION", "value": "False"},
            {"name": "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "value": "90"},
            {"name": "CLUSTER_DOMAIN", "value": ""},
        ],
    }
    values = values_of(rendered(kuberay=given)["gpu-control-plane"])
    assert values["ray"] == {
        "enabled": True,
        "watchNamespace": ["research"],
        "singleNamespaceInstall": True,
        "batchScheduler": {"name": "volcano"},
        "useKubernetesProxy": True,
        "configuration": {"defaultPodLabels": {"team": "ray"}},
        "env": {"ENABLE_PROBES_INJECTION": "false"},
    }
    assert values["controller"] == {"timings": {"ray": {"jobStatusCheckTimeout": "90s"}}}
    assert values["monitoring"] == {
        "serviceMonitors": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}
    }


def test_a_configuration_that_is_off_is_off() -> None:
    given = {"configuration": {"enabled": False, "defaultPodLabels": {"team": "ray"}}}
    assert "configuration" not in translate(given).values["ray"]


def test_kuberays_own_operator_may_be_kept() -> None:
    given = {"watchNamespace": ["research"], "image": {"tag": "v1.7.0"}, "replicas": 2}
    made = rendered(kuberay=given, keep_kuberay=True)
    assert values_of(made["kuberay-operator"]) == given
    assert made["kuberay-operator"]["spec"]["source"]["chart"] == "kuberay-operator"
    assert values_of(made["gpu-control-plane"])["ray"] == {"enabled": False}
    with pytest.raises(UnsupportedKeys, match="watchNamespaces: Neither chart has such a value"):
        rendered(kuberay={"watchNamespaces": ["a"]}, keep_kuberay=True)


def test_the_crds_of_kuberay_are_not_deleted_by_a_rendering(tmp_path: Path) -> None:
    """Argo CD deletes what an Application has brought when its file goes, and KubeRay's chart brings CRDs."""
    folder = str(tmp_path / "prod")
    assert CliRunner().invoke(commands, [*ARGUMENTS, "--ignore=image", "--keep-kuberay", folder]).exit_code == 0
    again = CliRunner().invoke(commands, [*ARGUMENTS, "--argocd-namespace=cd", folder])
    assert again.exit_code == 1
    assert "every\nRayCluster" in again.output
    assert "kubectl -n cd patch application kuberay-operator" in again.output
    assert (tmp_path / "prod/applications/kuberay-operator.yaml").exists()


def test_no_key_of_kuberay_has_two_rows_and_each_says_where_or_why() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    assert all(row.to or row.why for row in ROWS)


def test_the_guide_holds_the_table_for_kuberay() -> None:
    """After a change, put the output of `mapping_table()` between the two marks."""
    guide = (Path(__file__).parents[3] / "docs/migration.md").read_text()
    held = guide.partition("<!-- mapping of kuberay: begin -->\n")[2].partition("<!-- mapping of kuberay: end -->")[0]
    assert held.strip() == mapping_table().strip()


def test_what_needs_others_comes_after_them() -> None:
    made = rendered(gpu_operator={}, kuberay={}, keep_kuberay=True)
    waves = {
        name: int(each["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
        for name, each in made.items()
        if name != "gpu"
    }
    assert (
        waves["node-feature-discovery"]
        < waves["gpu-control-plane"]
        < min(waves["gpu-pools"], waves["kuberay-operator"])
    )
    for each in made.values():
        assert "ServerSideApply=true" in each["spec"]["syncPolicy"]["syncOptions"]
        # It would copy what controllers have written into what Argo CD applies, and own it from then on.
        assert "RespectIgnoreDifferences=true" not in each["spec"]["syncPolicy"]["syncOptions"]


@pytest.mark.parametrize(
    ("registry", "repository", "sentence"),
    [
        ("bad registry", SOURCE.repository, "'bad registry' is no host with a path"),
        ("https://registry.example.com", SOURCE.repository, "'https://registry.example.com' is no host with a path"),
        ("", SOURCE.repository, "'' is no host with a path"),
        (SOURCE.registry, "nonsense", "'nonsense' is no address that Argo CD could fetch from"),
        (SOURCE.registry, "https://git.example.com/my infra", "is no address that Argo CD could fetch from"),
        (SOURCE.registry, "https:///infra", "is no address that Argo CD could fetch from"),
        (SOURCE.registry, "clusters/prod", "is no address that Argo CD could fetch from"),
    ],
)
def test_a_place_that_nothing_could_be_fetched_from_is_refused(registry: str, repository: str, sentence: str) -> None:
    arguments = ["gitops", "render", "prod", "--registry", registry, "--repository", repository, "--check"]
    ran = CliRunner().invoke(commands, arguments)
    assert (ran.exit_code, sentence in ran.output) == (2, True), ran.output


@pytest.mark.parametrize("registry", ["oci://registry.example.com:5000/gpu/", "localhost:5000", "10.0.0.1/a_b/c.d"])
@pytest.mark.parametrize(
    "repository",
    [
        "https://git.example.com/infra.git",
        "ssh://git@git.example.com:2222/infra.git",
        "git@git.example.com:infra.git",
        "git.example.com:/srv/infra.git",
    ],
)
def test_places_are_taken_as_people_write_them(registry: str, repository: str, tmp_path: Path) -> None:
    places = ("--registry", registry, "--repository", repository)
    ran = CliRunner().invoke(commands, ["gitops", "render", str(tmp_path / "prod"), "--path=prod", *places])
    assert ran.exit_code == 0, ran.output
    root = yaml.safe_load((tmp_path / "prod/root.yaml").read_text())
    assert root["spec"]["source"]["repoURL"] == repository


@pytest.mark.parametrize("folder", ["/srv/infra/clusters/prod", "../infra/clusters/prod"])
def test_a_folder_whose_place_in_the_repository_is_not_known_needs_its_path(folder: str) -> None:
    arguments = ["gitops", "render", folder, "--registry=r.example.com", "--repository=https://git.example.com/i.git"]
    ran = CliRunner().invoke(commands, arguments)
    assert (ran.exit_code, "say its path from the root, with --path" in ran.output) == (2, True)


def test_another_namespace_is_where_the_stack_goes(tmp_path: Path) -> None:
    folder = str(tmp_path / "prod")
    assert CliRunner().invoke(commands, [*ARGUMENTS, "--namespace", "gpu-operator", folder]).exit_code == 0
    made = yaml.safe_load((tmp_path / "prod/applications/gpu-control-plane.yaml").read_text())
    assert made["spec"]["destination"]["namespace"] == "gpu-operator"


def test_pools_are_neither_pruned_nor_deleted_with_their_application() -> None:
    pools = applications.pools_application(SOURCE)
    assert pools["spec"]["syncPolicy"]["automated"]["prune"] is False
    assert "finalizers" not in pools["metadata"]


def test_a_rendering_is_written_checked_and_freed_of_what_is_no_longer_in_it(tmp_path: Path) -> None:
    run = CliRunner().invoke
    folder = str(tmp_path / "prod")
    assert run(commands, [*ARGUMENTS, "--check", folder], standalone_mode=False).return_value == 4
    assert run(commands, [*ARGUMENTS, folder]).exit_code == 0
    assert run(commands, [*ARGUMENTS, "--check", folder], standalone_mode=False).return_value == 0
    without_stack = (*ARGUMENTS[:-4], *ARGUMENTS[-2:])
    assert run(commands, [*without_stack, "--check", folder], standalone_mode=False).return_value == 4
    assert "removed " in run(commands, [*without_stack, folder]).output
    assert not (tmp_path / "prod/applications/kuberay-operator.yaml").exists()
    assert (tmp_path / "prod/pools/.gitkeep").exists()


def test_refusals_are_told_on_the_command_line(tmp_path: Path) -> None:
    values = tmp_path / "ap-values.yaml"
    values.write_text("mig: {strategie: single}\n")
    places = ("--registry", SOURCE.registry, "--repository", SOURCE.repository)
    arguments = ["gitops", "render", *places, "--path", "p", str(tmp_path / "out")]
    told = CliRunner().invoke(commands, [*arguments, "--gpu-operator", str(values)])
    assert told.exit_code == 1
    assert "mig.strategie: ClusterPolicy has no such field." in told.output
    assert not (tmp_path / "out").exists()
