"""Writes what comes from the Python types: the CRDs and the reference pages. `--check` only says what is stale."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from gpu_control_plane.api import DEFINITIONS, crd_manifest, nvidia, ray
from gpu_control_plane.api.nvidia.reference import nvidia_reference
from gpu_control_plane.api.ray.reference import ray_reference
from gpu_control_plane.api.reference import reference
from gpu_control_plane.kube.manifest_yaml import to_yaml

HEADER: Final = "Generated from the Python types, do not edit: make generate"

CRDS: Final = Path(__file__).parent / "crds"
KUSTOMIZATION: Final = "Kustomization"
"""By which others take the folder in. Of the names that kustomize knows, the one that does not look like a CRD's."""
PAGE: Final = Path("docs/api.md")
NVIDIA_PAGE: Final = Path("docs/api-nvidia.md")
RAY_PAGE: Final = Path("docs/api-ray.md")


def generated(root: Path) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    crds = {
        CRDS / f"{definition.resource.plural}.yaml": to_yaml(crd_manifest(definition), HEADER)
        for definition in (*DEFINITIONS, *nvidia.DEFINITIONS, *ray.DEFINITIONS)
    }
    crds[CRDS / KUSTOMIZATION] = to_yaml(
        {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [path.name for path in crds],
        },
        HEADER,
    )
    pages = {
        PAGE: reference(DEFINITIONS, HEADER),
        NVIDIA_PAGE: nvidia_reference(HEADER),
        RAY_PAGE: ray_reference(HEADER),
    }
    return crds | {root / page: text for page, text in pages.items()}


def stale(root: Path) -> list[Path]:
    """Generated files that differ from what the types say, and leftovers of kinds that are gone."""
    return out_of_date(generated(root), CRDS.glob("*.yaml"))


def write(root: Path) -> list[Path]:
    """Bring every generated file up to date; returns those that changed."""
    return bring_up_to_date(generated(root), stale(root))


def out_of_date(files: Mapping[Path, str], there: Iterable[Path]) -> list[Path]:
    """Files that do not hold what they should, and those that are there although nothing generates them."""
    differing = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    return differing + [path for path in sorted(there) if path not in files]


def bring_up_to_date(files: Mapping[Path, str], paths: list[Path]) -> list[Path]:
    """Write these of the files; one that nothing generates goes."""
    for path in paths:
        if path not in files:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
    return paths


def run(files: Mapping[Path, str], there: Iterable[Path], arguments: Sequence[str]) -> int:
    """What every generator does: write the files that are out of date, or with `--check` only name them."""
    root, paths = Path.cwd(), out_of_date(files, there)
    if "--check" in arguments:
        if paths:
            names = ", ".join(_short(path, root) for path in paths)
            sys.stderr.write(f"Out of date with the code: {names}. Run `make generate` and commit the result.\n")
        return 1 if paths else 0
    for path in bring_up_to_date(files, paths):
        sys.stdout.write(f"{_short(path, root)}\n")
    return 0


def main(arguments: Sequence[str] = ()) -> int:
    return run(generated(Path.cwd()), CRDS.glob("*.yaml"), arguments)


def _short(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
