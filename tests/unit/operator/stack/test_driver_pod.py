"""The driver's pod: images, features, files, probes."""

from typing import Any

import pytest

from gpu_control_plane.operator.node_facts import NodeKind, OperatingSystem
from gpu_control_plane.operator.stack.driver.mounts import FOLDERS
from gpu_control_plane.operator.stack.operands.driver import STATE
from unit.operator.stack.driver_builders import (
    CRIO_RHEL,
    KERNEL,
    RHEL,
    SLES,
    UBUNTU,
    driver,
    mounts,
    policy,
    problem,
    rendered,
)

MAIN, MANAGER, PEERMEM = "nvidia-driver-ctr", "k8s-driver-manager", "nvidia-peermem-ctr"
FS, GDR = "nvidia-fs-ctr", "nvidia-gdrcopy-ctr"


def test_the_stock_policy_gives_the_plain_driver() -> None:
    made = driver(policy())
    assert made.name == "nvidia-driver-daemonset"
    assert [held.name for held in made.containers()] == [MANAGER, MAIN]
    assert made.main.manifest["image"] == "nvcr.io/nvidia/driver:595.91.07-ubuntu24.04"
    assert made.container(MANAGER).manifest["image"] == "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"
    assert made.main.manifest["args"] == ["init"]
    assert made.container(MANAGER).manifest["args"] == ["uninstall_driver"]
    assert made.manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made.pod["hostPID"] is True
    assert made.pod["nodeSelector"]["nvidia.com/gpu.deploy.driver"] == "true"
    assert "runtimeClassName" not in made.pod


def test_hosts_show_what_a_driver_and_its_daemons_need() -> None:
    assert (
        mounts(driver(policy())).items()
        >= {
            "/run/nvidia": "/run/nvidia",
            "/run/nvidia-fabricmanager": "/run/nvidia-fabricmanager",
            "/run/nvidia-topologyd": "/run/nvidia-topologyd",
            "/var/log": "/var/log",
            "/dev/log": "/dev/log",
            "/host-etc/os-release": "/etc/os-release",
            "/run/mellanox/drivers": "/run/mellanox/drivers",
            "/sys/devices/system": "/sys/devices/system",
            "/sys/module/firmware_class/parameters/path": "/sys/module/firmware_class/parameters/path",
            "/lib/firmware": "/run/nvidia/driver/lib/firmware",
        }.items()
    )
    manager = mounts(driver(policy()), MANAGER)
    assert (manager["/host"], manager["/sys"]) == ("/", "/sys")


def test_every_mount_has_its_volume_and_every_volume_its_use() -> None:
    everything = policy({"rdma": {"enabled": True}}, gds={"enabled": True}, gdrcopy={"enabled": True})
    for made in (driver(policy()), driver(everything)):
        mounted = {mount["name"] for held in made.containers() for mount in held.manifest["volumeMounts"]}
        assert mounted == {volume["name"] for volume in made.pod["volumes"]}


def test_two_drivers_never_share_a_node() -> None:
    made = driver(policy())
    (term,) = made.pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    (wanted,) = term["labelSelector"]["matchExpressions"]
    assert made.template["metadata"]["labels"][wanted["key"]] in wanted["values"]


@pytest.mark.parametrize(
    ("section", "image"),
    [
        ({"version": "sha256:abc"}, "nvcr.io/nvidia/driver@sha256:abc"),
        ({"repository": "", "version": "", "image": "x/y@sha256:abc"}, "x/y@sha256:abc"),
        ({"repository": "", "version": "", "image": "x/y:1"}, "x/y:1-ubuntu24.04"),
        ({"repository": "", "version": "", "image": ""}, "from/env:2-ubuntu24.04"),
    ],
)
def test_the_image_is_for_the_system_unless_it_is_a_digest(section: dict[str, Any], image: str) -> None:
    made = driver(policy(section), images={"DRIVER_IMAGE": "from/env:2"})
    assert made.main.manifest["image"] == image


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"repository": ""}, "lacks repository"),
        ({"repository": "", "version": "", "image": "driver"}, "has no version"),
        ({"repository": "", "version": "", "image": ""}, "DRIVER_IMAGE"),
        ({"usePrecompiled": True, "version": "sha256:abc"}, "is a digest"),
        ({"kernelModuleConfig": {"name": "absent"}}, "ConfigMap absent, which kernelModuleConfig names, is not in"),
        ({"repoConfig": {"configMapName": "absent"}}, "ConfigMap absent, which repoConfig names, is not in"),
        ({"certConfig": {"name": "absent"}}, "ConfigMap absent, which certConfig names, is not in"),
        ({"virtualTopology": {"config": "absent"}}, "ConfigMap absent, which virtualTopology names, is not in"),
        ({"virtualTopology": {"config": "empty"}}, "has no key nvidia-topologyd.conf: add it"),
        ({"licensingConfig": {"configMapName": "absent"}}, "ConfigMap absent, which licensingConfig names, is not in"),
        (
            {"licensingConfig": {"configMapName": "empty", "nlsEnabled": True}},
            "has no key gridd.conf and no key client_configuration_token.tok: add it",
        ),
    ],
)
def test_what_cannot_be_rendered_says_why(section: dict[str, Any], says: str) -> None:
    assert says in problem(policy(section), config_maps={"empty": {}})


@pytest.mark.parametrize(("section", "container"), [("gds", FS), ("gdrcopy", GDR)])
def test_modules_beside_the_driver_need_a_version_as_the_driver_does(section: str, container: str) -> None:
    bare = {"enabled": True, "repository": "", "version": "", "image": "modules"}
    assert f"{container}'s image modules has no version" in problem(policy(None, **{section: bare}))


@pytest.mark.parametrize("section", [{"gds": {"enabled": True}}, {"gdrcopy": {"enabled": True}}])
def test_modules_cannot_be_built_beside_a_precompiled_driver(section: dict[str, Any]) -> None:
    assert "precompiled" in problem(policy({"usePrecompiled": True}, **section))


@pytest.mark.parametrize(
    ("kind", "variables"),
    [
        ("auto", {"KERNEL_MODULE_TYPE": "auto", "OPEN_KERNEL_MODULES_ENABLED": None}),
        ("open", {"KERNEL_MODULE_TYPE": "open", "OPEN_KERNEL_MODULES_ENABLED": "true"}),
        ("proprietary", {"KERNEL_MODULE_TYPE": "proprietary", "OPEN_KERNEL_MODULES_ENABLED": None}),
    ],
)
def test_the_kind_of_modules_is_in_the_environment(kind: str, variables: dict[str, str | None]) -> None:
    main = driver(policy({"kernelModuleType": kind})).main
    assert {name: main.env(name) for name in variables} == variables


def test_rdma_brings_peermem() -> None:
    made = driver(policy({"rdma": {"enabled": True}}))
    assert made.container(PEERMEM).manifest["image"] == made.main.manifest["image"]
    assert made.main.env("GPU_DIRECT_RDMA_ENABLED") == "true"
    assert made.main.env("USE_HOST_MOFED") is None
    assert mounts(made)["/run/mellanox/drivers/usr/src"] == "/run/mellanox/drivers/usr/src"


def test_the_mellanox_driver_of_the_host_is_used_only_with_rdma() -> None:
    made = driver(policy({"rdma": {"enabled": True, "useHostMofed": True}}))
    assert made.main.env("USE_HOST_MOFED") == "true"
    assert mounts(made)["/run/mellanox/drivers/usr/src"] == "/usr/src"
    without = driver(policy({"rdma": {"enabled": False, "useHostMofed": True}}))
    assert not without.has(PEERMEM)
    assert without.main.env("USE_HOST_MOFED") is None


@pytest.mark.parametrize(
    ("section", "container", "variable", "image"),
    [
        ("gds", FS, "GDS_ENABLED", "nvcr.io/nvidia/cloud-native/nvidia-fs:2.29.4-ubuntu24.04"),
        ("gdrcopy", GDR, "GDRCOPY_ENABLED", "nvcr.io/nvidia/cloud-native/gdrdrv:v2.6-ubuntu24.04"),
    ],
)
def test_modules_beside_the_driver_have_containers(section: str, container: str, variable: str, image: str) -> None:
    extra = {"enabled": True, "env": [{"name": "LOUD", "value": "1"}], "imagePullSecrets": ["secret"]}
    made = driver(policy(None, **{section: extra}))
    assert made.container(container).manifest["image"] == image
    assert made.container(container).env("LOUD") == "1"
    assert made.main.env(variable) == "true"
    assert {"name": "secret"} in made.pod["imagePullSecrets"]
    assert made.has(FS) != made.has(GDR)


def test_the_section_changes_the_pod() -> None:
    made = driver(
        policy(
            {
                "args": ["init", "--loud"],
                "env": [{"name": "KERNEL_MODULE_TYPE", "value": "mine"}],
                "resources": {"limits": {"memory": "1Gi"}},
                "hostNetwork": True,
                "imagePullPolicy": "Always",
                "imagePullSecrets": ["one"],
                "secretEnv": "present",
                "manager": {
                    "repository": "r",
                    "image": "m",
                    "version": "1",
                    "imagePullSecrets": ["two"],
                    "env": [{"name": "ENABLE_AUTO_DRAIN", "value": "true"}],
                },
            }
        ),
    )
    main, manager = made.main, made.container(MANAGER)
    assert main.manifest["args"] == ["init", "--loud"]
    assert main.env("KERNEL_MODULE_TYPE") == "mine"
    assert main.manifest["resources"] == {"limits": {"memory": "1Gi"}}
    assert main.manifest["imagePullPolicy"] == "Always"
    assert main.manifest["envFrom"] == [{"secretRef": {"name": "present"}}]
    assert (manager.manifest["image"], manager.env("ENABLE_AUTO_DRAIN")) == ("r/m:1", "true")
    assert (made.pod["hostNetwork"], made.pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert made.pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]


def test_secrets_and_resources_reach_every_container_that_builds_or_runs_the_driver() -> None:
    given = {"secretEnv": "present", "resources": {"limits": {"memory": "1Gi"}}, "rdma": {"enabled": True}}
    made = driver(policy(given, gds={"enabled": True}, gdrcopy={"enabled": True}))
    assert [held.name for held in made.running()] == [MAIN, PEERMEM, FS, GDR]
    for container in made.running():
        assert container.manifest["envFrom"] == [{"secretRef": {"name": "present"}}]
        assert container.manifest["resources"] == {"limits": {"memory": "1Gi"}}
    assert "envFrom" not in made.container(MANAGER).manifest


@pytest.mark.parametrize(
    ("section", "field"),
    [({"secretEnv": "absent"}, "secretEnv"), ({"licensingConfig": {"secretName": "absent"}}, "licensingConfig")],
)
def test_a_secret_that_does_not_exist_is_named(section: dict[str, Any], field: str) -> None:
    found = rendered(policy(section), missing_secrets={"absent"})
    assert found.problem == (
        f"the Secret absent, which {field} names, is not in namespace gpu-operator: create it;"
        " until then no driver is replaced"
    )
    assert not found.daemonsets
    assert rendered(policy(section), missing_secrets={"other"}).daemonsets


def test_parameters_of_kernel_modules_reach_peermem() -> None:
    given = {"kernelModuleConfig": {"name": "parameters"}, "rdma": {"enabled": True}}
    made = driver(policy(given), config_maps={"parameters": {"nvidia.conf": "", "nvidia-peermem.conf": ""}})
    for name in (MAIN, PEERMEM):
        paths = {entry["mountPath"] for entry in made.container(name).manifest["volumeMounts"]}
        assert paths >= {"/drivers/nvidia.conf", "/drivers/nvidia-peermem.conf"}


def test_the_root_of_the_host_can_lie_elsewhere() -> None:
    made = driver(policy(None, hostPaths={"rootFS": "/sysroot"}))
    assert mounts(made, MANAGER)["/host"] == "/sysroot"
    assert made.container(MANAGER).env("HOST_ROOT") == "/sysroot"


def test_common_settings_do_not_change_the_update_strategy_of_drivers() -> None:
    made = driver(
        policy(None, daemonsets={"rollingUpdate": {"maxUnavailable": "50%"}, "labels": {"app": "x", "a": "b"}})
    )
    assert made.manifest["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert made.template["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
    assert made.template["metadata"]["labels"]["a"] == "b"


def test_the_start_up_probe_has_the_policys_times() -> None:
    probe = driver(policy({"startupProbe": {"initialDelaySeconds": 5, "failureThreshold": 7}})).main.manifest[
        "startupProbe"
    ]
    assert (probe["initialDelaySeconds"], probe["failureThreshold"], probe["periodSeconds"]) == (5, 7, 10)


def test_liveness_and_readiness_ask_what_the_start_up_probe_asks() -> None:
    wanted = {"periodSeconds": 30, "successThreshold": 2}
    main = driver(policy({"livenessProbe": wanted, "readinessProbe": wanted})).main.manifest
    assert main["livenessProbe"]["exec"] == main["readinessProbe"]["exec"] == main["startupProbe"]["exec"]
    assert "successThreshold" not in main["livenessProbe"]
    assert main["readinessProbe"]["successThreshold"] == 2
    assert main["livenessProbe"]["timeoutSeconds"] == 60
    assert not {"livenessProbe", "readinessProbe"} & driver(policy()).main.manifest.keys()


@pytest.mark.parametrize("system", sorted(FOLDERS))
def test_repositories_and_certificates_lie_where_the_system_looks(system: str) -> None:
    config_maps = {"repos": {"b.list": "", "a.list": ""}, "certs": {"ca.crt": ""}}
    section = {"repoConfig": {"configMapName": "repos"}, "certConfig": {"name": "certs"}}
    made = driver(
        policy(section, gds={"enabled": True}), NodeKind(system=OperatingSystem(system, "9")), config_maps=config_maps
    )
    for container in (MAIN, FS):
        found = mounts(made, container)
        assert found[f"{FOLDERS[system].repositories}/a.list"] == "repos"
        assert found[f"{FOLDERS[system].certificates}/ca.crt"] == "certs"
    entries = [held for held in made.main.manifest["volumeMounts"] if held["name"] == "repo-config"]
    assert [held["subPath"] for held in entries] == ["a.list", "b.list"]
    assert all(held["readOnly"] for held in entries)


def test_a_strange_system_has_no_place_for_repositories() -> None:
    strange = NodeKind(system=OperatingSystem("talos", "v1.12.6"))
    config_maps = {"repos": {"a.list": ""}}
    assert "talos" in problem(policy({"repoConfig": {"configMapName": "repos"}}), strange, config_maps=config_maps)


def test_a_precompiled_driver_needs_no_repositories() -> None:
    section = {"usePrecompiled": True, "repoConfig": {"configMapName": "absent"}}
    assert not problem(policy(section), UBUNTU)


def test_parameters_of_modules_are_files() -> None:
    made = driver(policy({"kernelModuleConfig": {"name": "params"}}), config_maps={"params": {"nvidia.conf": "x"}})
    assert mounts(made)["/drivers/nvidia.conf"] == "params"


@pytest.mark.parametrize(
    ("licensing", "found"),
    [
        ({"secretName": "s", "configMapName": "c"}, {"/drivers/gridd.conf": "s"}),
        ({"configMapName": "c", "nlsEnabled": False}, {"/drivers/gridd.conf": "c"}),
        (
            {"secretName": "s", "nlsEnabled": True},
            {"/drivers/gridd.conf": "s", "/drivers/ClientConfigToken/client_configuration_token.tok": "s"},
        ),
    ],
)
def test_a_licence_comes_from_a_secret_or_else_a_config_map(licensing: dict[str, Any], found: dict[str, str]) -> None:
    made = driver(policy({"licensingConfig": licensing}), config_maps={"c": {"gridd.conf": ""}})
    assert {path: source for path, source in mounts(made).items() if path.startswith("/drivers/")} == found


def test_a_topology_is_a_file() -> None:
    held = {"topology": {"nvidia-topologyd.conf": ""}}
    made = driver(policy({"virtualTopology": {"config": "topology"}}), config_maps=held)
    assert mounts(made)["/etc/nvidia/nvidia-topologyd.conf"] == "topology"


RED_HAT = {
    "/run/secrets/etc-pki-entitlement": "/etc/pki/entitlement",
    "/run/secrets/redhat.repo": "/etc/yum.repos.d/redhat.repo",
    "/run/secrets/rhsm": "/etc/rhsm",
}
SUSE = {"/etc/zypp/credentials.d": "/etc/zypp/credentials.d", "/etc/SUSEConnect": "/etc/SUSEConnect"}
SUBSCRIPTIONS = {**RED_HAT, **SUSE, "/run/host/lib/modules": "/lib/modules"}


@pytest.mark.parametrize(
    ("section", "kind", "found"),
    [
        ({}, RHEL, RED_HAT),
        ({}, CRIO_RHEL, {}),
        ({"repoConfig": {"configMapName": "repos"}}, RHEL, {}),
        ({}, SLES, SUSE),
        ({"usePrecompiled": True}, SLES, {"/run/host/lib/modules": "/lib/modules"}),
        ({"usePrecompiled": True}, RHEL, {}),
        ({}, UBUNTU, {}),
    ],
)
def test_subscriptions_of_the_host_are_passed_on(
    section: dict[str, Any], kind: NodeKind, found: dict[str, str]
) -> None:
    made = driver(policy(section), kind, config_maps={"repos": {}})
    assert {path: source for path, source in mounts(made).items() if path in SUBSCRIPTIONS} == found


def test_a_precompiled_driver_is_for_one_kernel() -> None:
    made = driver(policy({"usePrecompiled": True, "version": "595"}))
    assert made.main.manifest["image"] == f"nvcr.io/nvidia/driver:595-{KERNEL}-ubuntu24.04"
    assert made.template["metadata"]["labels"]["nvidia.com/precompiled"] == "true"


@pytest.mark.parametrize(
    ("section", "there", "orphaned"),
    [
        ({}, True, False),
        ({"enabled": None}, True, False),
        ({"enabled": False}, False, False),
        ({"useNvidiaDriverCRD": True}, False, True),
    ],
)
def test_the_state_is_off_where_drivers_come_from_elsewhere(
    section: dict[str, Any], there: bool, orphaned: bool
) -> None:
    assert rendered(policy(section)).enabled is there
    assert STATE.orphan(policy(section)) is orphaned
