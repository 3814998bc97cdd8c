"""The example of a cluster bring-up: `examples/deckhouse/` has the description and what becomes of it.

The description's source is in the package, since `kubectl gpu deckhouse example` prints it. Run without arguments to
write, with `--check` to fail if the files are not what they would be.
"""

import sys
from pathlib import Path

from gpu_control_plane.deckhouse.bootstrap_commands import bootstrap_commands
from gpu_control_plane.deckhouse.description import FileReference, read_description
from gpu_control_plane.deckhouse.render import render

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/gpu_control_plane/deckhouse/example.yaml"
FOLDER = ROOT / "examples/deckhouse"


def files() -> dict[Path, str]:
    """Every generated file with its content."""
    text = SOURCE.read_text()
    cluster = read_description(text)
    made = render(cluster, {each: _certificate(each) for _place, each in cluster.certificates})
    commands = "\n\n".join(f"# {each.title}:\n{each.text}" for each in bootstrap_commands(cluster, FOLDER))
    return {
        FOLDER / "cluster.yaml": text,
        FOLDER / "rendered/config.yml": made.config_yml(),
        FOLDER / "rendered/resources.yml": made.resources_yml(),
        FOLDER / "rendered/commands.txt": f"{commands}\n",
    }


def _certificate(reference: FileReference) -> str:
    return (FOLDER / reference.path).read_text()


def main() -> None:
    """Write the files, or check them."""
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        if stale:
            names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
            sys.exit(f"Not up to date: {names}. Run `make generate`.")
        return
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path])


if __name__ == "__main__":
    main()
