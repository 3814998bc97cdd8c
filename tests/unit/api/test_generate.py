"""The generated files are what the types say, and a stale one is found."""

from pathlib import Path

import pytest
import yaml

from gpu_control_plane.api import DEFINITIONS, generate, nvidia, ray
from gpu_control_plane.api.names import Annotation

ROOT = Path(__file__).parents[3]


def test_generated_files_are_up_to_date() -> None:
    assert generate.stale(ROOT) == [], "run `make generate`"


def test_each_kind_has_a_file_marked_with_the_release() -> None:
    for definition in (*DEFINITIONS, *nvidia.DEFINITIONS, *ray.DEFINITIONS):
        crd = yaml.safe_load((generate.CRDS / f"{definition.resource.plural}.yaml").read_text())
        assert crd["metadata"]["name"] == definition.name
        assert crd["metadata"]["annotations"][Annotation.CRD_VERSION]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository to generate into."""
    monkeypatch.setattr(generate, "CRDS", tmp_path / "crds")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_check_names_what_is_stale_and_what_to_do(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main() == 0
    (elsewhere / "crds/gpupools.yaml").write_text("old")
    (elsewhere / "crds/gpuwidgets.yaml").write_text("of a kind that is gone")
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "Out of date with the code: crds/gpupools.yaml, crds/gpuwidgets.yaml. "
        "Run `make generate` and commit the result.\n"
    )


def test_the_kinds_of_nvidia_and_ray_are_checked_too(elsewhere: Path) -> None:
    generate.write(elsewhere)
    kinds = ("clusterpolicies", "nvidiadrivers", "rayclusters", "raycronjobs", "rayjobs", "rayservices")
    files = [*(f"crds/{kind}.yaml" for kind in kinds), "docs/api-nvidia.md", "docs/api-ray.md"]
    for file in files:
        (elsewhere / file).write_text("old")
    assert sorted(generate.stale(elsewhere)) == sorted(elsewhere / file for file in files)


def test_generating_mends_what_is_stale_and_nothing_else(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate.main()
    (elsewhere / "crds/gpuwidgets.yaml").write_text("of a kind that is gone")
    capsys.readouterr()
    assert generate.main() == 0
    assert capsys.readouterr().out == "crds/gpuwidgets.yaml\n"
    assert generate.main(["--check"]) == 0


def test_the_page_has_every_kind_and_every_name() -> None:
    page = (ROOT / "docs/api.md").read_text()
    for definition in DEFINITIONS:
        assert f"## {definition.resource.kind}\n" in page
        assert all(f"`{name}`" in page for name in definition.short_names)
    assert all(f"`{annotation.value}`" in page for annotation in Annotation)
