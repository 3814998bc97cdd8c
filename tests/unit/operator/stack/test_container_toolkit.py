"""The toolkit: how cards are given, where it is installed, and the files of each runtime."""

from typing import Any

import pytest

from gpu_control_plane.operator.node_facts import NodeKind
from gpu_control_plane.operator.stack.daemonset_manifest import DaemonSetManifest
from gpu_control_plane.operator.stack.operands.container_toolkit import STATE
from unit.operator.stack.container_builders import (
    CDI_OFF,
    CONTAINERD,
    CRIO,
    DOCKER,
    NRI,
    OPENSHIFT,
    daemonset,
    env,
    mounts,
    render_input,
)

HOOKS = "/usr/share/containers/oci/hooks.d"


def toolkit_env(**variables: str) -> dict[str, Any]:
    return {"toolkit": {"env": [{"name": name, "value": value} for name, value in variables.items()]}}


def test_stock_values_are_those_that_the_toolkit_knows() -> None:
    made = daemonset(STATE, render_input())
    assert made.pod["hostPID"] is True
    assert (
        env(made).items()
        >= {
            "ROOT": "/usr/local/nvidia",
            "NVIDIA_VISIBLE_DEVICES": "void",
            "TOOLKIT_PID_FILE": "/run/nvidia/toolkit/toolkit.pid",
            "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND": "management.nvidia.com/gpu",
            "CDI_ENABLED": "true",
            "NVIDIA_RUNTIME_SET_AS_DEFAULT": "false",
            "NVIDIA_CONTAINER_RUNTIME_MODE": "cdi",
            "CRIO_CONFIG_MODE": "config",
        }.items()
    )
    assert (
        mounts(made).items()
        >= {
            "/run/nvidia/toolkit": "/run/nvidia/toolkit",
            "/run/nvidia/validations": "/run/nvidia/validations",
            "/usr/local/nvidia": "/usr/local/nvidia",
            "/driver-root": "/run/nvidia/driver",
            "/host": "/",
            "/var/run/cdi": "/var/run/cdi",
            "/entrypoint": "nvidia-container-toolkit-entrypoint",
        }.items()
    )


def test_its_first_container_waits_for_the_driver_and_leaves_the_file_on_the_host() -> None:
    made = daemonset(STATE, render_input())
    assert env(made, "driver-validation").items() >= {"COMPONENT": "driver", "WITH_WAIT": "true"}.items()
    assert mounts(made, "driver-validation")["/host-dev-char"] == "/dev/char"
    (mount,) = [
        held
        for held in made.container("driver-validation").manifest["volumeMounts"]
        if held["mountPath"] == "/run/nvidia/validations"
    ]
    assert mount["mountPropagation"] == "Bidirectional"


@pytest.mark.parametrize(
    ("kind", "config", "drop_in", "socket"),
    [
        (
            CONTAINERD,
            ("CONTAINERD_CONFIG", "/etc/containerd", "config.toml"),
            ("/etc/containerd/conf.d", "99-nvidia.toml"),
            ("CONTAINERD_SOCKET", "/run/containerd", "containerd.sock"),
        ),
        (
            CRIO,
            ("CRIO_CONFIG", "/etc/crio", "config.toml"),
            ("/etc/crio/crio.conf.d", "99-nvidia.conf"),
            None,
        ),
        (
            DOCKER,
            ("DOCKER_CONFIG", "/etc/docker", "daemon.json"),
            None,
            ("DOCKER_SOCKET", "/var/run", "docker.sock"),
        ),
    ],
    ids=["containerd", "crio", "docker"],
)
def test_the_files_of_each_runtime_are_mounted_and_named(
    kind: NodeKind, config: tuple[str, str, str], drop_in: tuple[str, str] | None, socket: tuple[str, str, str] | None
) -> None:
    made = daemonset(STATE, render_input(kind))
    told, seen = env(made), mounts(made)
    assert told["RUNTIME"] == kind.runtime.value
    variable, folder, file = config
    assert told["RUNTIME_CONFIG"] == told[variable] == f"/runtime/config-dir/{file}"
    assert seen["/runtime/config-dir"] == folder
    assert seen.get("/runtime/config-dir.d") == (drop_in[0] if drop_in else None)
    assert told.get("RUNTIME_DROP_IN_CONFIG") == (f"/runtime/config-dir.d/{drop_in[1]}" if drop_in else None)
    assert told.get("RUNTIME_DROP_IN_CONFIG_HOST_PATH") == ("/".join(drop_in) if drop_in else None)
    assert seen.get("/runtime/sock-dir") == (socket[1] if socket else None)
    assert told.get("RUNTIME_SOCKET") == (f"/runtime/sock-dir/{socket[2]}" if socket else None)
    if socket:
        assert told[socket[0]] == told["RUNTIME_SOCKET"]


def test_folders_for_configuration_are_made_but_not_those_of_sockets() -> None:
    made = daemonset(STATE, render_input())
    assert made.volume("containerd-config")["hostPath"]["type"] == "DirectoryOrCreate"
    assert made.volume("containerd-drop-in-config")["hostPath"]["type"] == "DirectoryOrCreate"
    assert "type" not in made.volume("containerd-socket")["hostPath"]


def test_only_containerd_gets_the_name_of_the_runtime_class() -> None:
    named: dict[str, Any] = {"operator": {"runtimeClass": "cards"}}
    assert env(daemonset(STATE, render_input(**named)))["CONTAINERD_RUNTIME_CLASS"] == "cards"
    assert "CONTAINERD_RUNTIME_CLASS" not in env(daemonset(STATE, render_input(CRIO, **named)))


@pytest.mark.parametrize("variable", ["CONTAINERD_CONFIG", "RUNTIME_CONFIG"])
def test_people_move_the_configuration_by_a_path_of_the_host(variable: str) -> None:
    made = daemonset(
        STATE, render_input(**toolkit_env(**{variable: "/var/lib/rancher/k3s/agent/etc/containerd/config.tmpl"}))
    )
    assert mounts(made)["/runtime/config-dir"] == "/var/lib/rancher/k3s/agent/etc/containerd"
    assert env(made)["RUNTIME_CONFIG"] == env(made)["CONTAINERD_CONFIG"] == "/runtime/config-dir/config.tmpl"


def test_people_move_drop_in_and_socket_too() -> None:
    moved = toolkit_env(
        RUNTIME_DROP_IN_CONFIG="/etc/k0s/containerd.d/nvidia.toml", CONTAINERD_SOCKET="/run/k0s/containerd.sock"
    )
    made = daemonset(STATE, render_input(**moved))
    assert mounts(made)["/runtime/config-dir.d"] == "/etc/k0s/containerd.d"
    assert env(made)["RUNTIME_DROP_IN_CONFIG"] == "/runtime/config-dir.d/nvidia.toml"
    assert env(made)["RUNTIME_DROP_IN_CONFIG_HOST_PATH"] == "/etc/k0s/containerd.d/nvidia.toml"
    assert mounts(made)["/runtime/sock-dir"] == "/run/k0s"
    assert env(made)["RUNTIME_SOCKET"] == env(made)["CONTAINERD_SOCKET"] == "/runtime/sock-dir/containerd.sock"


def test_the_variable_of_one_runtime_does_not_move_the_files_of_another() -> None:
    made = daemonset(STATE, render_input(CRIO, **toolkit_env(CONTAINERD_CONFIG="/elsewhere/config.toml")))
    assert mounts(made)["/runtime/config-dir"] == "/etc/crio"


def test_a_file_as_a_further_source_is_one_of_the_host() -> None:
    made = daemonset(STATE, render_input(**toolkit_env(RUNTIME_CONFIG_SOURCE="command,file=/etc/containerd/base.toml")))
    assert env(made)["RUNTIME_CONFIG_SOURCE"] == "command,file=/host/etc/containerd/base.toml"


@pytest.mark.parametrize(
    ("made", "mode"),
    [
        (daemonset(STATE, render_input(CRIO, **CDI_OFF)), "hook"),
        (daemonset(STATE, render_input(CRIO)), "config"),
        (daemonset(STATE, render_input(**CDI_OFF)), None),
    ],
)
def test_crio_has_a_hook_only_without_cdi(made: DaemonSetManifest, mode: str | None) -> None:
    assert env(made).get("CRIO_CONFIG_MODE") == mode


def test_without_cdi_nothing_is_said_of_it() -> None:
    assert not {"CDI_ENABLED", "NVIDIA_CONTAINER_RUNTIME_MODE", "NVIDIA_RUNTIME_SET_AS_DEFAULT"} & set(
        env(daemonset(STATE, render_input(**CDI_OFF)))
    )


def test_people_may_have_the_runtime_ignore_what_images_ask_for() -> None:
    """As docs/security.md advises where it is the default runtime."""
    variable = "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"
    made = daemonset(STATE, render_input(**toolkit_env(**{variable: "false"})))
    assert env(made)[variable] == "false"


def test_people_may_make_it_the_default_runtime_all_the_same() -> None:
    made = daemonset(STATE, render_input(**toolkit_env(NVIDIA_RUNTIME_SET_AS_DEFAULT="true")))
    assert env(made)["NVIDIA_RUNTIME_SET_AS_DEFAULT"] == "true"


def test_hooks_are_where_crio_looks_for_them() -> None:
    assert mounts(daemonset(STATE, render_input(CRIO)))[HOOKS] == HOOKS
    assert mounts(daemonset(STATE, render_input(openshift=OPENSHIFT)))[HOOKS] == "/run/containers/oci/hooks.d"


def test_openshift_has_crio_whatever_a_node_says() -> None:
    assert env(daemonset(STATE, render_input(CONTAINERD, openshift=OPENSHIFT)))["RUNTIME"] == "crio"


def test_it_is_installed_where_people_want_it() -> None:
    made = daemonset(STATE, render_input(toolkit={"installDir": "/opt/nvidia/"}))
    assert env(made)["ROOT"] == "/opt/nvidia"
    assert mounts(made)["/opt/nvidia"] == "/opt/nvidia"
    assert "/usr/local/nvidia" not in mounts(made)


def test_with_nri_the_runtime_is_not_configured() -> None:
    made = daemonset(STATE, render_input(**NRI))
    told, seen = env(made), mounts(made)
    assert told["ENABLE_NRI_PLUGIN"] == "true"
    assert told["NRI_SOCKET"] == "/runtime/nri-sock-dir/nri.sock"
    assert seen["/runtime/nri-sock-dir"] == "/var/run/nri"
    assert not {"RUNTIME_CONFIG", "RUNTIME_SOCKET", "RUNTIME_DROP_IN_CONFIG", "CONTAINERD_RUNTIME_CLASS"} & set(told)
    assert not {"/runtime/config-dir", "/runtime/config-dir.d", "/runtime/sock-dir"} & set(seen)


def test_the_socket_of_nri_can_be_elsewhere() -> None:
    made = daemonset(STATE, render_input(**NRI, **toolkit_env(NRI_SOCKET="/run/k3s/nri/nri.sock")))
    assert mounts(made)["/runtime/nri-sock-dir"] == "/run/k3s/nri"
    assert env(made)["NRI_SOCKET"] == "/runtime/nri-sock-dir/nri.sock"


def test_the_driver_can_be_elsewhere() -> None:
    made = daemonset(STATE, render_input(hostPaths={"driverInstallDir": "/opt/driver"}))
    assert mounts(made)["/driver-root"] == "/opt/driver"
    assert mounts(made, "driver-validation")["/opt/driver"] == "/opt/driver"
    assert env(made, "driver-validation")["DRIVER_INSTALL_DIR"] == "/opt/driver"
