"""The verbs that transforms are made of: each does what it says, where it says, and twice is as good as once."""

from typing import Any

import pytest

from gpu_control_plane.operator.stack.daemonset_manifest import ContainerManifest, DaemonSetManifest


def _daemonset() -> DaemonSetManifest:
    return DaemonSetManifest(
        {
            "metadata": {"name": "a"},
            "spec": {
                "selector": {"matchLabels": {"app": "a"}},
                "template": {
                    "metadata": {"labels": {"app": "a"}},
                    "spec": {
                        "initContainers": [
                            {"name": "first", "volumeMounts": [{"name": "run", "mountPath": "/run"}]},
                        ],
                        "containers": [
                            {"name": "main", "volumeMounts": [{"name": "run", "mountPath": "/run"}]},
                            {"name": "beside"},
                        ],
                        "volumes": [{"name": "run", "hostPath": {"path": "/run"}}, {"name": "box", "emptyDir": {}}],
                    },
                },
            },
        }
    )


def _container(**fields: Any) -> ContainerManifest:
    return ContainerManifest({"name": "a", **fields})


def test_a_variable_is_added_at_the_end_and_changed_in_its_place() -> None:
    container = _container()
    for name, value in (("A", "1"), ("B", "2"), ("A", "3")):
        container.set_env(name, value)
    assert container.manifest["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]


def test_a_written_value_takes_the_place_of_one_from_somewhere_else() -> None:
    container = _container(env=[{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
    assert container.env("NODE") is None
    container.set_env("NODE", "mine")
    assert container.manifest["env"] == [{"name": "NODE", "value": "mine"}]


def test_a_variable_can_be_removed() -> None:
    container = _container(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
    container.drop_env("A")
    container.drop_env("never there")
    assert container.env("A") is None
    assert container.env("B") == "2"


def test_a_mount_has_only_the_fields_that_were_given() -> None:
    container = _container()
    container.mount("run", "/run")
    container.mount("files", "/etc/a", sub_path="a", read_only=True, propagation="HostToContainer")
    assert container.manifest["volumeMounts"] == [
        {"name": "run", "mountPath": "/run"},
        {
            "name": "files",
            "mountPath": "/etc/a",
            "subPath": "a",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        },
    ]


def test_one_path_has_one_mount() -> None:
    container = _container()
    container.mount("old", "/run")
    container.mount("new", "/run")
    assert container.manifest["volumeMounts"] == [{"name": "new", "mountPath": "/run"}]


def test_a_mount_can_be_moved_and_removed() -> None:
    container = _container(volumeMounts=[{"name": "run", "mountPath": "/run"}, {"name": "sys", "mountPath": "/sys"}])
    container.move_mount("run", "/other")
    container.move_mount("never there", "/nowhere")
    assert [mount["mountPath"] for mount in container.manifest["volumeMounts"]] == ["/other", "/sys"]
    container.unmount("run")
    assert [mount["name"] for mount in container.manifest["volumeMounts"]] == ["sys"]


def test_containers_are_those_that_run_first_and_those_that_stay() -> None:
    made = _daemonset()
    assert [container.name for container in made.containers()] == ["first", "main", "beside"]
    assert made.main.name == "main"
    assert made.has("first")
    assert not made.has("never there")
    assert made.container("beside").name == "beside"


def test_what_the_asset_does_not_have_is_named() -> None:
    made = _daemonset()
    with pytest.raises(KeyError, match="elsewhere"):
        made.container("elsewhere")
    with pytest.raises(KeyError, match="elsewhere"):
        made.volume("elsewhere")


def test_containers_are_removed_by_name_among_init_containers_too() -> None:
    made = _daemonset()
    made.drop("first", "beside", "never there")
    assert [container.name for container in made.containers()] == ["main"]


def test_a_pod_without_init_containers_stays_without() -> None:
    made = _daemonset()
    del made.pod["initContainers"]
    made.drop("first")
    assert "initContainers" not in made.pod


def test_a_volume_that_is_added_again_has_the_new_source_only() -> None:
    made = _daemonset()
    made.add_volume("box", configMap={"name": "layouts"})
    assert made.volume("box") == {"name": "box", "configMap": {"name": "layouts"}}
    assert [volume["name"] for volume in made.pod["volumes"]] == ["run", "box"]


def test_a_volume_is_removed_with_its_mounts() -> None:
    made = _daemonset()
    made.drop_volume("run")
    assert not made.has_volume("run")
    assert not [mount for container in made.containers() for mount in container.manifest.get("volumeMounts", ())]


def test_a_folder_of_the_host_can_be_another_one() -> None:
    made = _daemonset()
    made.move_host_path("run", "/other/run")
    made.move_host_path("never there", "/nowhere")
    assert made.volume("run")["hostPath"] == {"path": "/other/run"}
    assert not made.has_volume("never there")


def test_labels_go_to_the_daemonset_and_its_pods_but_protected_ones_stay() -> None:
    made = _daemonset()
    made.label({"app": "mine", "team": "ml"}, protected=("app",))
    assert made.manifest["metadata"]["labels"] == {"app": "mine", "team": "ml"}
    assert made.template["metadata"]["labels"] == {"app": "a", "team": "ml"}


def test_annotations_go_to_the_daemonset_and_its_pods() -> None:
    made = _daemonset()
    made.annotate({})
    assert "annotations" not in made.template["metadata"]
    made.annotate({"team": "ml"})
    assert made.manifest["metadata"]["annotations"] == {"team": "ml"}
    assert made.template["metadata"]["annotations"] == {"team": "ml"}


def test_nodes_are_restricted_further_never_less() -> None:
    made = _daemonset()
    made.select({})
    made.select({"a": "1"})
    made.select({"b": "2"})
    assert made.pod["nodeSelector"] == {"a": "1", "b": "2"}


def test_a_new_name_is_the_objects_name_only() -> None:
    made = _daemonset()
    made.name = "b"
    assert made.manifest["metadata"]["name"] == "b"
    assert made.manifest["spec"]["selector"]["matchLabels"] == {"app": "a"}
