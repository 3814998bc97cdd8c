"""The schema of the Deckhouse module's settings, in the package: `kubectl gpu deckhouse` holds settings to it.

Its source is `deckhouse/openapi/config-values.yaml`, which has explanations and examples besides.

Run without arguments to write, with `--check` to fail if the file is not what it would be.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from gpu_control_plane.kube.schema_faults import KEYWORDS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "deckhouse/openapi/config-values.yaml"
TARGET = ROOT / "src/gpu_control_plane/deckhouse/module_settings.json"
FOR_PEOPLE = {"description", "default", "x-examples"}


def shortened(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without what decides nothing."""
    if unknown := schema.keys() - KEYWORDS - FOR_PEOPLE:
        sys.exit(f"{SOURCE.relative_to(ROOT)} says {', '.join(unknown)}: kube/schema_faults.py does not know that yet.")
    kept = {name: schema[name] for name in schema if name in KEYWORDS}
    if "properties" in kept:
        kept["properties"] = {name: shortened(each) for name, each in kept["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = shortened(kept[name])
    return kept


def main() -> None:
    """Write the file, or check it."""
    text = json.dumps(shortened(yaml.safe_load(SOURCE.read_text())), indent=1) + "\n"
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
    elif not TARGET.exists() or TARGET.read_text() != text:
        sys.exit(f"Not up to date: {TARGET.relative_to(ROOT)}. Run `make generate`.")


if __name__ == "__main__":
    main()
