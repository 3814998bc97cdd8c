"""What is packed is complete, the same every time, and in the layout that Deckhouse and werf read."""

import base64
import gzip
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring.alert import rules
from monitoring.alerts.groups import ALERTS, GROUPS
from monitoring.deckhouse import LEVELS
from release.archives import unpacked
from release.module import IMAGES, MODULE, module_files, pack_module, read_digests, unpack_module
from release.source import PROJECT, ReleaseError, Source

from helm.chart import Helm, command_of
from helm.conftest import cannot
from helm.deckhouse.module import SETTING_SETS, Module
from helm.schemas import CRDS

SOURCE = Source(version="1.2.3", commit="c0ffee", time=datetime(2026, 1, 2, tzinfo=UTC))
DIGEST = f"sha256:{'a' * 64}"
PAGES = ("README", "CONFIGURATION", "CR", "EXAMPLES", "FAQ")


def test_the_archive_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = pack_module(SOURCE, module_files("1.2.3"), tmp_path)
    second = pack_module(SOURCE, module_files("1.2.3"), tmp_path / "again")
    assert first.read_bytes() == second.read_bytes()
    assert unpacked(first) == module_files("1.2.3")


def test_the_archive_has_what_deckhouse_looks_for() -> None:
    files = module_files("1.2.3", read_digests([f"ours={DIGEST}"]))
    assert {
        "module.yaml",
        "Chart.yaml",
        "openapi/config-values.yaml",
        "openapi/values.yaml",
        "oss.yaml",
    } <= files.keys()
    assert files["version.json"].content == b'{"version": "v1.2.3"}\n'
    assert yaml.safe_load(files["images_digests.json"].content) == {"controller": DIGEST, "agent": DIGEST}
    assert yaml.safe_load(files["Chart.yaml"].content)["version"] == "1.2.3"
    assert not [name for name in files if "__pycache__" in name]


def test_packing_again_keeps_what_werf_needs_and_empties_no_other_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "module", tmp_path / "other"
    files = module_files("1.2.3")
    unpack_module({**files, "templates/old.yaml": files["module.yaml"]}, folder)
    for name in (".git/HEAD", "base_images.yml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    unpack_module(files, folder)
    assert [(folder / name).read_text() for name in (".git/HEAD", "base_images.yml")] == ["mine", "mine"]
    assert not (folder / "templates/old.yaml").exists()
    other.mkdir()
    (other / "letters.txt").write_text("mine")
    with pytest.raises(ReleaseError, match="name another folder"):
        unpack_module(files, other)
    assert (other / "letters.txt").read_text() == "mine"


@pytest.mark.parametrize("pair", ["ours", "ours=latest", f"plugin={DIGEST}", f"gfd={DIGEST[:-1]}"])
def test_wrong_digests_are_refused(pair: str) -> None:
    with pytest.raises(ReleaseError, match="does not say which image has which digest"):
        read_digests([pair])


def test_nothing_of_the_chart_is_copied_in_git() -> None:
    mine = {path.relative_to(MODULE).as_posix() for path in MODULE.rglob("*") if path.is_file()}
    packed = module_files("1.2.3").keys()
    assert mine <= packed
    assert not [name for name in mine if name.startswith(("templates/chart/", "monitoring/", "files/", "crds/gpu"))]


def test_the_release_fits_into_its_secret(module: Module, helm: Helm, tmp_path: Path) -> None:
    """Helm keeps a release, chart and all, in a Secret of at most 1 MiB."""
    helm.run("package", str(module.folder), "--destination", str(tmp_path))
    [package] = tmp_path.glob("*.tgz")
    manifest = gzip.compress(module.render(SETTING_SETS["nvidias-programs"]).encode())
    # Twice in base64: once by Helm in the chart's JSON, once as the data of the Secret.
    assert len(base64.b64encode(base64.b64encode(package.read_bytes() + manifest))) < 2**20


def test_crds_say_whose_they_are_and_are_translated() -> None:
    files = module_files("1.2.3")
    crds = {name for name in files if _is_crd(name)}
    assert crds == {f"crds/{path.name}" for path in CRDS.glob("gpu*.yaml")}
    for name in crds:
        crd = yaml.safe_load(files[name].content)
        assert crd["metadata"]["labels"] == {"module": "gpu-control-plane"}
        russian = yaml.safe_load(files[name.replace("crds/", "crds/doc-ru-")].content)
        for ours, theirs in zip(crd["spec"]["versions"], russian["spec"]["versions"], strict=True):
            assert ours["name"] == theirs["name"]
            _translates(theirs["schema"]["openAPIV3Schema"], ours["schema"]["openAPIV3Schema"])


def test_kinds_of_others_are_left_to_the_job(module: Module) -> None:
    """Deckhouse would put them over those of NVIDIA's operator and of KubeRay, and fields of theirs would be lost."""
    applied = [file for name, file in module_files("1.2.3").items() if _is_crd(name)]
    assert {yaml.safe_load(file.content)["spec"]["group"] for file in applied} == {"gpu.deckhouse.io"}
    job = module.objects({}).pod("install-crds")
    assert "gpu_control_plane.installation.crds" in command_of(job)
    assert "--take-over" not in command_of(job)


def _is_crd(name: str) -> bool:
    return name.startswith("crds/") and not name.startswith("crds/doc-ru-")


def _translates(russian: dict[str, Any], english: dict[str, Any]) -> None:
    """Only what there is, and only its text."""
    assert russian.keys() <= {"description", "properties"}
    assert re.search("[\u0430-\u044f]", russian["description"])
    for name, each in russian.get("properties", {}).items():
        _translates(each, english["properties"][name])


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_there_in_both_languages(page: str) -> None:
    english, russian = ((MODULE / "docs" / f"{page}{end}").read_text() for end in (".md", ".ru.md"))
    assert english.startswith("---\ntitle: ")
    assert russian.startswith("---\ntitle: ")
    assert re.findall("(?m)^#+", english) == re.findall("(?m)^#+", russian)
    assert re.findall("(?ms)^```.*?^```", english) == re.findall("(?ms)^```.*?^```", russian)


def test_settings_in_the_pages_are_accepted(module: Module) -> None:
    found = 0
    for page in PAGES:
        for block in re.findall("(?ms)^```yaml\n(.*?)^```", (MODULE / "docs" / f"{page}.md").read_text()):
            for document in yaml.safe_load_all(block):
                if document["kind"] == "ModuleConfig":
                    module.render(document["spec"].get("settings", {}))
                    found += 1
    assert found > 1


def test_alerts_are_the_charts_with_deckhouses_labels() -> None:
    files = module_files("1.2.3")
    ours = {
        rule["alert"]: rule
        for name, file in files.items()
        if name.startswith("monitoring/prometheus-rules/")
        for group in yaml.safe_load(file.content)
        for rule in group["rules"]
    }
    theirs = {rule["alert"]: rule for group in rules(GROUPS)["groups"] for rule in group["rules"]}
    assert ours.keys() == theirs.keys()
    for alert in ALERTS:
        mine, chart = ours[alert.name], theirs[alert.name]
        assert all(mine[key] == chart[key] for key in ("expr", "for", "keep_firing_for"))
        assert mine["labels"] == {"severity_level": LEVELS[alert.severity], "tier": "cluster"}
        assert mine["annotations"]["plk_protocol_version"] == "1"
        assert mine["annotations"]["description"].startswith(alert.description)
        assert "](" not in mine["annotations"]["description"], "a link leads nowhere in a cluster"


def test_prometheus_accepts_the_rules(module: Module, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        cannot("promtool is not installed: tools/system-packages installs it")
        return
    for path in (module.folder / "monitoring/prometheus-rules").glob("*.yaml"):
        (tmp_path / path.name).write_text(yaml.safe_dump({"groups": yaml.safe_load(path.read_text())}))
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run([promtool, "check", "rules", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = sum(int(number) for number in re.findall(r"(\d+) rules found", done.stdout))
    assert found == len(ALERTS)


def test_dashboards_are_in_grafanas_folder(module: Module) -> None:
    boards = module.objects({}).of("GrafanaDashboardDefinition")
    assert {each["spec"]["folder"] for each in boards} == {"Main"}
    assert len(boards) == len(list((PROJECT / "charts/gpu-control-plane/monitoring/dashboards").glob("*.json")))


@pytest.fixture(scope="module")
def werf(module: Module, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The images of werf.yaml by name. Helm's engine is the same as werf's but for `env`, which is answered here."""
    folder = tmp_path_factory.mktemp("werf")
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: werf, version: 0.0.0}")
    for path in [
        module.folder / "oss.yaml",
        module.folder / "werf.yaml",
        *module.folder.glob("images/*/werf.inc.yaml"),
    ]:
        copied = folder / path.relative_to(module.folder)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(re.sub(r'env "\w+" ("[^"]+")', r"\1", path.read_text()))
    shutil.copy(module.folder / "base_images.yml.example", folder / "base_images.yml")
    (folder / "templates").mkdir()
    (folder / "templates/werf.yaml").write_text('{{ tpl (.Files.Get "werf.yaml") . }}')
    documents = list(yaml.safe_load_all(helm.run("template", "werf", str(folder))))
    return {each["image"]: each for each in documents if each and "image" in each}


def test_werf_builds_the_images_that_templates_ask_for(werf: dict[str, dict[str, Any]]) -> None:
    final = {name for name, each in werf.items() if each.get("final", True)}
    asked = {re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", image) for image in IMAGES}
    assert final == asked | {"bundle", "release-channel-version"}
    known = {each["image"] for each in werf["digests"]["dependencies"]}
    assert known == asked
    variables = {each["imports"][0]["targetEnv"].removeprefix("DIGEST_") for each in werf["digests"]["dependencies"]}
    assert variables == set(IMAGES)


def test_every_image_goes_from_sources_by_a_build_to_distroless(werf: dict[str, dict[str, Any]]) -> None:
    for image in IMAGES:
        name = re.sub("[A-Z]", lambda found: f"-{found[0].lower()}", image)
        final = werf[name]
        assert final["fromImage"] == "distroless"
        built = {each["image"] for each in final["import"]} - {"busybox-build-artifact"}
        [build] = built
        assert build.endswith("-build-artifact")
        sources = {each["image"] for each in werf[build]["import"]}
        assert build.replace("-build-", "-src-") in sources
        assert werf[build]["final"] is False
        assert "shell" not in final, "nothing is done in a final image"


def test_every_stage_starts_from_something_there_is(werf: dict[str, dict[str, Any]]) -> None:
    for name, each in werf.items():
        needed = {each.get("fromImage"), *(part["image"] for part in each.get("import", []))} - {None}
        assert needed <= werf.keys(), name


def test_upstream_is_pinned_and_patched_by_the_rules(werf: dict[str, dict[str, Any]]) -> None:
    versions = {each["id"]: each["version"] for each in yaml.safe_load((MODULE / "oss.yaml").read_text())}
    text = yaml.safe_dump(list(werf.values()), width=10_000)
    for part, version in versions.items():
        assert version in text, f"{part} is not built in version {version}"
    for folder in MODULE.glob("images/*/patches"):
        assert f"/images/{folder.parent.name}/patches" in text
        sections = re.findall(r"(?m)^## (\d{3}-[a-z0-9-]+\.patch)$", (folder / "README.md").read_text())
        assert sorted(path.name for path in folder.glob("*.patch")) == sections


def test_dcgm_has_its_library_for_profiling(werf: dict[str, dict[str, Any]]) -> None:
    """NVIDIA publishes it in a package of its own; without it there is not one DCGM_FI_PROF_*."""
    fetched = " ".join(werf["dcgm-src-artifact"]["shell"]["install"])
    [parts] = re.findall("for part in ([^;]+);", fetched)
    assert {"core", "proprietary"} <= set(parts.split())
    exporter = werf["dcgm-exporter-build-artifact"]["import"]
    assert "dcgm-build-artifact" in {each["image"] for each in exporter}
