"""Writes the console's OpenAPI document from the code. `--check` only says whether the file is stale."""

import sys
from pathlib import Path
from typing import Final

import msgspec

from gpu_control_plane.api.generate import run
from gpu_control_plane.console.api.openapi import openapi_document

FILE: Final = Path("docs/console-openapi.json")


if __name__ == "__main__":
    text = msgspec.json.format(msgspec.json.encode(openapi_document()), indent=2).decode() + "\n"
    sys.exit(run({Path.cwd() / FILE: text}, (), sys.argv[1:]))
