"""An agent takes no more along than it uses, and takes nothing away from anybody."""

import subprocess
import sys

_PROGRAM = """
import os, sys
from gpu_control_plane.agent.footprint import import_sparingly

before = dict(os.environ)
import_sparingly()
import gpu_control_plane.agent.node.process
assert "structlog" in sys.modules and "aiohttp" in sys.modules
unused = {"rich", "pygments", "cryptography", "pynvml"} & sys.modules.keys()
assert not unused, unused
assert dict(os.environ) == before
import rich.console
"""

_WITH_RICH = """
import rich, sys
from gpu_control_plane.agent.footprint import import_sparingly

import_sparingly()
assert sys.modules["rich"] is rich
"""


def test_the_agent_imports_nothing_it_does_not_use_and_everything_stays_importable() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)


def test_libraries_that_are_there_already_are_left_alone() -> None:
    subprocess.run([sys.executable, "-c", _WITH_RICH], check=True, timeout=60)
