"""The RayJob of the page is one that the operator carries out, with the image that `make ray-image` makes."""

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import pytest
import yaml
from images.errors import ImageError

from e2e.ray.image import __main__ as making
from e2e.ray.image.recipe import NAME, RAY
from gpu_control_plane.api import ray
from gpu_control_plane.api.ray import RayJob
from gpu_control_plane.rules.ray.job import job_problems
from unit.docs.test_links import ROOT

PAGE = (ROOT / "docs/ray-first-job.md").read_text()
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "examples/ray/first-job.yaml").read_text())
CLUSTER: dict[str, Any] = MANIFEST["spec"]["rayClusterSpec"]


def unknown(value: object, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Fields that a schema does not know; what it leaves open, such as pods, is not looked into."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from unknown(each, schema.get("items", {}), f"{path}[{number}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, held in value.items():
            if name not in schema["properties"]:
                yield f"{path}.{name}"
            yield from unknown(held, schema["properties"].get(name, {}), f"{path}.{name}")


def containers() -> list[dict[str, Any]]:
    groups = (CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"])
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_the_operator_finds_nothing_wrong_with_it() -> None:
    job = msgspec.convert(MANIFEST, RayJob)
    assert (MANIFEST["apiVersion"], MANIFEST["kind"]) == (RayJob.resource.api_version, RayJob.resource.kind)
    assert job_problems(job) == ()


def test_it_has_no_field_that_the_api_server_would_drop() -> None:
    (definition,) = (one for one in ray.DEFINITIONS if one.resource == RayJob.resource)
    schema = definition.schema()["properties"]["spec"]
    assert list(unknown(MANIFEST["spec"], schema, "spec")) == []
    assert list(unknown({"entrypint": ""}, schema, "spec")) == ["spec.entrypint"]


def test_its_image_is_the_one_that_is_made_and_is_never_pulled() -> None:
    assert {container["image"] for container in containers()} == {NAME}
    assert {container["imagePullPolicy"] for container in containers()} == {"Never"}
    assert CLUSTER["rayVersion"] == RAY
    assert set(re.findall(r"localhost/ray:[\d.]+", PAGE)) == {NAME}


def test_it_asks_for_what_the_page_says_of_its_worker() -> None:
    (asked,) = (line for line in PAGE.splitlines() if line.startswith("resources: "))
    assert containers()[-1]["resources"] == yaml.safe_load(asked)["resources"]


def test_its_entrypoint_is_python() -> None:
    program = MANIFEST["spec"]["entrypoint"].split('"')[1]
    compile(program, "first-job.yaml", "exec")


def test_making_the_image_fails_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make test` goes on without it, and somebody who follows the page learns of it there and then."""

    def unreachable(_architecture: str, _progress: object) -> NoReturn:
        raise ImageError("no mirror answers")

    monkeypatch.setattr(making, "prepare", unreachable)
    monkeypatch.delenv("CI", raising=False)
    assert making.main(["required"]) == 1
    assert making.main([]) == 0
    assert "There is no image with Ray" in capsys.readouterr().err
