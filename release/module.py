"""Packs the Deckhouse module: what is in `deckhouse/`, and the chart's templates, CRDs and monitoring beside it.

Templates are the chart's own. Each is wrapped into a named template and called with what the module's `_chart.tpl`
makes of its settings; `_platform.tpl`, which has all that differs between platforms, is the module's.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from images.recipe import PRODUCT
from monitoring.deckhouse import monitoring_files

from gpu_control_plane.api.names import GROUP
from release.archives import File, pack
from release.source import PROJECT, ReleaseError, Source

MODULE: Final = PROJECT / "deckhouse"
CHART: Final = PROJECT / "charts/gpu-control-plane"
IMAGES: Final = ("controller", "agent", "gfd", "dcgm", "dcgmExporter", "validator")
"""The images of the module, as templates ask for them."""
OURS: Final = ("controller", "agent")
"""Those of them that have our programs, which is one image under two names unless werf builds them."""

_CRDS: Final = PROJECT / "src/gpu_control_plane/api/crds"
_RECIPE: Final = ("src", "images", "tools/uv.txt", "pyproject.toml", "uv.lock", "README.md", "LICENSE")
"""What our image is made of."""
_WITHOUT: Final = ("_platform.tpl", "NOTES.txt", "hooks/test.yaml")
"""Templates of the chart that the module has its own of, or that only the command `helm` shows and runs."""

_PEOPLES: Final = frozenset({".git", "base_images.yml"})
"""What people have in a packed module that werf builds from: its history, and Deckhouse's base images."""
_YAML: Final[dict[str, Any]] = {"sort_keys": False, "allow_unicode": True, "width": 10_000}
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def pack_module(source: Source, files: Mapping[str, File], into: Path) -> Path:
    """Write the module's archive: the layer of an image from which Deckhouse installs, or a folder for werf."""
    path = into / f"{PRODUCT}-module-{source.version}.tar.gz"
    pack(path, files, int(source.time.timestamp()))
    return path


def unpack_module(files: Mapping[str, File], folder: Path) -> None:
    """Write the module's files into a folder, in place of the module that was there. What people keep in it for werf
    stays; a folder with anything else is refused."""
    _remove_module(folder)
    for name, file in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.program else 0o644)


def _remove_module(folder: Path) -> None:
    there = list(folder.iterdir()) if folder.is_dir() else []
    if there and not (folder / "module.yaml").is_file():
        raise ReleaseError(f"{folder} holds something else than a module, and would be emptied: name another folder.")
    for each in there:
        if each.name in _PEOPLES:
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def module_files(
    version: str, digests: Mapping[str, str] | None = None, library: Path | None = None
) -> dict[str, File]:
    """Every file of the module by its path. With the digests of its images and Deckhouse's library, an archive of the
    latter's publisher, it can be installed as it is; else werf builds the images and writes their digests."""
    files = dict(_below(MODULE))
    files["Chart.yaml"] = _text(_chart_yaml(version))
    files |= {f"templates/chart/{name}": _text(text) for name, text in _templates().items()}
    files["files/chart-values.yaml"] = _text(_chart_values())
    files |= {f"files/{name}": file for name, file in _below(CHART / "files")}
    files |= {f"crds/{path.name}": _text(yaml.safe_dump(crd, **_YAML)) for path, crd in _our_crds()}
    files |= {f"monitoring/{name}": _text(text) for name, text in monitoring_files(PROJECT).items()}
    for part in _RECIPE:
        files |= {f"images/python/source/{name}": file for name, file in _below(PROJECT / part, PROJECT)}
    files["version.json"] = _text(json.dumps({"version": f"v{version}"}) + "\n")
    if digests:
        files["images_digests.json"] = _text(json.dumps(dict(sorted(digests.items())), indent=1) + "\n")
    if library:
        files[f"charts/{library.name}"] = File(library.read_bytes())
    return files


def read_digests(pairs: Iterable[str]) -> dict[str, str]:
    """Digests by image, as people give them: IMAGE=DIGEST."""
    digests: dict[str, str] = {}
    for pair in pairs:
        name, _, digest = pair.partition("=")
        names = OURS if name == "ours" else (name,)
        if not set(names) <= set(IMAGES) or not _DIGEST.fullmatch(digest):
            raise ReleaseError(
                f"{pair!r} does not say which image has which digest. Images are {', '.join(IMAGES)}, and ours for the "
                "first two; a digest is sha256: and 64 digits, as `crane digest` prints it."
            )
        digests |= dict.fromkeys(names, digest)
    return digests


def _templates() -> dict[str, str]:
    """The chart's templates as the module has them, by their paths."""
    templates = {}
    for path in sorted((CHART / "templates").rglob("*")):
        name = path.relative_to(CHART / "templates").as_posix()
        if path.is_file() and name not in _WITHOUT:
            templates[name] = path.read_text() if path.suffix == ".tpl" else _wrapped(name, path.read_text())
    return templates


def _wrapped(name: str, text: str) -> str:
    """A template of the chart that is called with the chart's own kind of root."""
    return (
        f'{{{{- define "chart:{name}" }}}}\n{text.rstrip()}\n{{{{- end }}}}\n'
        f'{{{{- $chart := dict }}}}{{{{- include "gpuControlPlane.chartContext" (list . $chart) }}}}\n'
        f'{{{{- include "chart:{name}" $chart }}}}\n'
    )


def _chart_values() -> str:
    """The chart's defaults. What they are for is in the chart; here they only cost room in the release."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return yaml.safe_dump(values, sort_keys=False)


def _chart_yaml(version: str) -> str:
    chart: dict[str, Any] = yaml.safe_load((MODULE / "Chart.yaml").read_text())
    return yaml.safe_dump(chart | {"version": version, "appVersion": version}, sort_keys=False)


def _our_crds() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The CRDs of our own kinds, with the label by which Deckhouse knows whose they are.

    Deckhouse puts what is in `crds/` over whatever has the same name. NVIDIA's and KubeRay's kinds may be those of
    their own operators, so the module's job brings them: it leaves alone what another product has installed.
    """
    for path in sorted(_CRDS.glob("*.yaml")):
        crd: dict[str, Any] = yaml.safe_load(path.read_text())
        if crd["spec"]["group"] == GROUP:
            crd["metadata"]["labels"] = {"module": PRODUCT}
            yield path, crd


def _below(path: Path, relative_to: Path | None = None) -> Iterator[tuple[str, File]]:
    """The files below a folder, or the one file that it is."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and "__pycache__" not in file.parts:
            program = bool(file.stat().st_mode & 0o100)
            yield file.relative_to(relative_to or path).as_posix(), File(file.read_bytes(), program=program)


def _text(text: str) -> File:
    return File(text.encode())
