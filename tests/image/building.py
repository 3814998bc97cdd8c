"""The real image for tests, made once however many workers ask for it."""

import os
from pathlib import Path

import msgspec
import pytest
from images.errors import MirrorFailed
from images.recipe import Built, build

from gpu_control_plane.local.locks import exclusive
from gpu_control_plane.local.platforms import this_platform
from gpu_control_plane.local.progress import Quiet


def shared_image(factory: pytest.TempPathFactory) -> Built:
    """The image for this machine's processor. Whoever comes first makes it."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    record = shared / "image.json"
    with exclusive(shared / "image.lock", Quiet(), "which is making the image"):
        if record.exists():
            return msgspec.json.decode(record.read_bytes(), type=Built, dec_hook=lambda kind, text: kind(text))
        built = build_here(shared / "image")
        record.write_bytes(msgspec.json.encode(built, enc_hook=str))
        return built


def build_here(folder: Path) -> Built:
    """Make the image; without a network and with an empty cache that cannot be done, which only CI holds against us."""
    try:
        return build(this_platform().arch, folder, Quiet())
    except MirrorFailed as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
