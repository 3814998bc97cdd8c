"""The list of images has what the pods of an installation run, as the operator's own code names it."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_control_plane.cli.main import run
from gpu_control_plane.installation.image_list import DECLARE, ImageList, list_images, operating_system
from unit.doctor.clusters import SECTIONS

UBUNTU = operating_system("ubuntu24.04")
MANAGER = {"repository": "registry.example", "image": "manager", "version": "v1"}
DRIVER = {"repository": "registry.example", "image": "driver", "version": "595.91", "manager": MANAGER}
OFF = {name: {"enabled": False} for name in (*SECTIONS, "migManager") if name not in ("operator", "daemonsets")}


def workload(kind: str, name: str, *images: str, **container: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": image, **container} for image in images]
    return {"kind": kind, "metadata": {"name": name}, "spec": {"template": {"spec": {"containers": containers}}}}


def policy(**sections: Any) -> dict[str, Any]:
    spec = {
        **OFF,
        "operator": {},
        "daemonsets": {},
        "validator": {"image": "registry.example/validator:v1"},
        **sections,
    }
    return {"kind": "ClusterPolicy", "metadata": {"name": "policy"}, "spec": spec}


def names(found: ImageList) -> list[str]:
    return [each.image for each in found.images]


def test_every_container_of_every_workload_counts_once() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "test"}, "spec": {"containers": [{"name": "x", "image": "ours:1"}]}}
    cron = {"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": workload("Job", "c", "cron:1")}}
    agent = workload("DaemonSet", "agent", "ours:1", "theirs:1")
    agent["spec"]["template"]["spec"]["initContainers"] = [{"name": "first", "image": "first:1"}]
    found = list_images([{"kind": "List", "items": [pod, cron]}, agent, {"kind": "ConfigMap", "metadata": {}}])
    assert names(found) == ["cron:1", "first:1", "ours:1", "theirs:1"]
    assert found.images[2].used_by == ("Pod test", "DaemonSet agent")
    assert found.problems == ()


def test_what_a_policy_asks_for_is_named_as_the_operator_names_it() -> None:
    toolkit = {"repository": "registry.example", "image": "toolkit", "version": f"sha256:{'0' * 64}"}
    found = list_images([policy(driver=DRIVER, toolkit=toolkit)], [UBUNTU, operating_system("rhel9.4")])
    assert names(found) == [
        "registry.example/driver:595.91-rhel9",
        "registry.example/driver:595.91-ubuntu24.04",
        "registry.example/manager:v1",
        f"registry.example/toolkit@sha256:{'0' * 64}",
        "registry.example/validator:v1",
    ]
    assert found.problems == ()


def test_a_policy_in_the_job_of_the_chart_counts_and_so_do_images_of_the_operator() -> None:
    declared = json.dumps(policy(validator={}, driver={**DRIVER, "env": [{"name": "A", "value": "$$"}]}))
    job = workload("Job", "declare", "ours:1", command=["python3", "-m", DECLARE, declared.replace("$", "$$")])
    variable = {"name": "VALIDATOR_IMAGE", "value": "registry.example/other-validator:v2"}
    controller = workload("Deployment", "controller", "ours:1", env=[variable, {"name": "POD_NAME"}])
    found = list_images([job, controller], [UBUNTU])
    assert "registry.example/other-validator:v2" in names(found)
    assert "registry.example/driver:595.91-ubuntu24.04" in names(found)


def test_precompiled_drivers_have_the_kernel_in_their_tag() -> None:
    driver = {"kind": "NVIDIADriver", "metadata": {"name": "all"}, "spec": {**DRIVER, "usePrecompiled": True}}
    found = list_images([driver], [UBUNTU], ["6.8.0-60-generic"])
    assert names(found)[0] == "registry.example/driver:595.91-6.8.0-60-generic-ubuntu24.04"


def test_an_nvidia_driver_counts_only_where_the_policy_leaves_drivers_to_it() -> None:
    driver = {"kind": "NVIDIADriver", "metadata": {"name": "all"}, "spec": DRIVER}
    used = {"enabled": True, "useNvidiaDriverCRD": True}
    assert "registry.example/driver:595.91-ubuntu24.04" in names(list_images([policy(driver=used), driver], [UBUNTU]))
    assert names(list_images([policy(), driver], [UBUNTU])) == ["registry.example/validator:v1"]


def test_a_config_map_that_only_the_cluster_has_hides_no_image() -> None:
    exporter = {"image": "registry.example/exporter:v1", "config": {"name": "metrics"}}
    assert "registry.example/exporter:v1" in names(list_images([policy(dcgmExporter=exporter)]))


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (policy(driver=DRIVER), r"ClusterPolicy policy: state-driver: .*--os ubuntu24\.04"),
        ({"kind": "NVIDIADriver", "metadata": {"name": "x"}, "spec": DRIVER}, r"NVIDIADriver x: .*--os ubuntu24\.04"),
        (
            policy(gfd={"enabled": True}),
            r"gpu-feature-discovery: the spec names no image .*set repository, image and v",
        ),
        (policy(driver={"enabled": "yes"}), r"ClusterPolicy policy: .*driver\.enabled"),
    ],
)
def test_what_cannot_be_named_says_what_to_do(document: dict[str, Any], sentence: str) -> None:
    (problem,) = list_images([document]).problems
    assert re.search(sentence, problem), problem


def test_the_command_prints_names_for_scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_text(yaml.safe_dump_all([workload("DaemonSet", "agent", "ours:1"), policy(driver=DRIVER)]))
    assert run(["images", str(file), "-o", "name", "--os", "ubuntu24.04"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "ours:1"
    assert run(["images", str(file)]) == 5
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].split() == ["IMAGE", "USED", "BY"]
    assert shown.err.startswith("! ClusterPolicy policy: state-driver: the image depends on the nodes")


@pytest.mark.parametrize(
    ("text", "system", "code", "sentence"),
    [
        ("", "ubuntu24.04", 1, "holds no manifests. Give the output of `helm template`"),
        ("agent: {}", "ubuntu24.04", 1, "holds no manifests"),
        ("{", "ubuntu24.04", 1, "is no YAML"),
        (b"\xff\xfek\x00", "ubuntu24.04", 1, "no text in UTF-8"),
        ("[" * 300_000 + "]" * 300_000, "ubuntu24.04", 1, "nested more than 100 levels deep"),
        ("kind: Pod", "Ubuntu", 2, "'Ubuntu' is no name and version, such as ubuntu24.04"),
    ],
)
def test_the_command_says_what_it_needs(
    tmp_path: Path, text: str | bytes, system: str, code: int, sentence: str
) -> None:
    file = tmp_path / "manifests.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        assert run(["images", str(file), "--os", system]) == code
    assert sentence in said.getvalue()
