"""Makes the Python messages of the kubelet's protocols from their `.proto` files. `--check` only says what is stale."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROTOCOL: Final = Path(__file__).parent / "protocol"
ROOT: Final = Path(__file__).parents[3]
"""Names of protocol files begin here, so that they are as unique in the process as those of modules."""


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    sources = [str(path.relative_to(ROOT)) for path in sorted(PROTOCOL.glob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        command = (f"--proto_path={ROOT}", f"--python_out={folder}", f"--pyi_out={folder}", *sources)
        subprocess.run((sys.executable, "-m", "grpc_tools.protoc", *command), check=True)
        made = Path(folder)
        return {ROOT / path.relative_to(made): path.read_text() for path in sorted(made.rglob("*_pb2.py*"))}


def stale() -> list[Path]:
    """Generated files that differ from what the protocols say, and leftovers of protocols that are gone."""
    files = generated()
    differing = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    return differing + [path for path in sorted(PROTOCOL.glob("*_pb2.py*")) if path not in files]


def write() -> list[Path]:
    """Bring every generated file up to date; returns those that changed."""
    changed, files = stale(), generated()
    for path in changed:
        if path in files:
            path.write_text(files[path])
        else:
            path.unlink()
    return changed


def main(arguments: Sequence[str] = ()) -> int:
    if "--check" in arguments:
        paths = stale()
        if paths:
            names = ", ".join(path.name for path in paths)
            sys.stderr.write(
                f"Out of date with the .proto files: {names}. Run `make generate` and commit the result.\n"
            )
        return 1 if paths else 0
    for path in write():
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
