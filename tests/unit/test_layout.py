"""What the import contracts of pyproject.toml rest on: the linter sees packages, and passes over other folders."""

from pathlib import Path

import gpu_control_plane

ROOT = Path(gpu_control_plane.__file__ or "").parent


def test_every_folder_with_code_is_a_package() -> None:
    folders = {file.parent for file in ROOT.rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
