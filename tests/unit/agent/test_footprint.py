"""An agent imports no more than it uses, and everything stays importable."""

import subprocess
import sys

_PROGRAM = """
import asyncio.sslproto, os, sys
from gpu_control_plane.agent import start
from gpu_control_plane.agent.footprint import import_sparingly, limit_buffers

before = dict(os.environ)
limit_buffers()
import_sparingly()
import gpu_control_plane.agent.node.process, gpu_control_plane.agent.vendors.registry, gpu_control_plane.kube.process
gpu_control_plane.agent.vendors.registry.supported()
assert "structlog" in sys.modules and "aiohttp" in sys.modules
unused = {
    "aiohttp.web",  # a command line of its own, and WebSockets: the status server takes the parts it needs
    "argparse",
    "click",  # only the process that reads the command line has it
    "cryptography",  # certificates of clients are read by OpenSSL
    "gpu_control_plane.agent.command_line",
    "gpu_control_plane.agent.fleet",
    "gpu_control_plane.agent.runtimes",
    "gpu_control_plane.agent.simulated",
    "gpu_control_plane.kube.certificates",
    "html.entities",  # for reading HTML
    "pygments",
    "pynvml",  # only where there is a card
    "rich",
    "yaml",  # only where there is a kubeconfig in YAML
} & sys.modules.keys()
assert not unused, unused
assert dict(os.environ) == before
assert asyncio.sslproto.SSLProtocol.max_size < 256 * 1024
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
