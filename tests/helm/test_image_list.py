"""The list of images is complete for what the chart really renders, also for the policy in a job's arguments."""

import yaml

from gpu_control_plane.installation.image_list import ImageList, list_images, operating_system
from helm.chart import CHART, VALUE_SETS, Helm

BOOTSTRAP = {
    "bootstrap": {
        "gfd": {"enabled": True, "image": "registry.example/k8s-device-plugin:v1"},
        "dcgmExporter": {"enabled": True, "image": "registry.example/dcgm-exporter:v1"},
    },
    "agent": {"labels": False},
    "image": {"repository": "registry.example/gpu-control-plane", "tag": "v1"},
}


def images(helm: Helm, values: dict[str, object]) -> ImageList:
    return list_images(helm.objects(values).all, [operating_system("ubuntu24.04")])


def test_programs_of_bootstrap_and_jobs_are_listed(helm: Helm) -> None:
    found = {each.image: each.used_by for each in images(helm, BOOTSTRAP).images}
    assert found.keys() == {
        "registry.example/gpu-control-plane:v1",
        "registry.example/k8s-device-plugin:v1",
        "registry.example/dcgm-exporter:v1",
    }
    assert {"Job gpu-control-plane-test", "Job gpu-control-plane-cleanup"} <= set(
        found["registry.example/gpu-control-plane:v1"]
    )


def test_images_of_operands_are_listed_or_missed_by_name(helm: Helm) -> None:
    found = images(helm, VALUE_SETS["stack"])
    assert "registry.example/validator:v1" in [each.image for each in found.images]
    assert any("container-toolkit" in problem and "names no image" in problem for problem in found.problems)


def test_containers_that_are_added_to_pods_of_ray_are_listed(helm: Helm) -> None:
    found = {each.image: each.used_by for each in images(helm, VALUE_SETS["ray-alone"]).images}
    assert found["registry.example/logs:1"] == ("pods of Ray, sidecar logs",)


def test_the_values_in_the_docs_pull_from_the_mirror_alone(helm: Helm) -> None:
    section = (CHART.parents[1] / "docs/install.md").read_text().split("## Without a network")[1]
    example = section.split("```yaml\n")[1].split("```")[0].replace("sha256:…", f"sha256:{'0' * 64}")
    found = [each.image for each in images(helm, yaml.safe_load(example)).images]
    assert {
        "registry.internal/container-toolkit:v1.20.0",
        f"registry.internal/gpu-control-plane@sha256:{'0' * 64}",
    } <= {*found}
    assert all(image.startswith("registry.internal/") for image in found), found
