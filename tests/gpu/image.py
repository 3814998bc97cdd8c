"""A container image with Python, made of the interpreter that runs this: its programs, modules and libraries.

The driver is not in it. Whatever of the driver a pod of this image sees came through CDI.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

import gpu_control_plane
from gpu import pod_program
from gpu_control_plane.agent.vendors.nvidia.cuda import kernel_check, libcuda
from gpu_control_plane.local.images import Image, root_file_system

PYTHON = "localhost/python:machine"
_PROGRAMS = Path("srv")
_LIBRARY = re.compile(r"(/\S+) \(0x")
_LEFT_OUT = {"__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter"}


def python_image(driver: Path) -> Image:
    """`driver` is the driver's library: what it asks of the C library is in the image, it itself is not."""
    interpreter = Path(sys.executable).resolve()
    modules = [*_modules(Path(sysconfig.get_path("stdlib")))]
    compiled = [path for path in modules if path.suffix == ".so"]
    libraries = set(_libraries([interpreter, driver, *compiled])) - {driver}
    files = {str(path).lstrip("/"): path.read_bytes() for path in (interpreter, *modules, *libraries)}
    return Image(
        name=PYTHON,
        layer=root_file_system({**files, **dict(_ours())}, folders=("dev", "etc", "proc", "sys", "tmp")),
        command=(str(interpreter),),
    )


def command(card: str) -> list[str]:
    """What a container of this image runs to check a card, and to keep it busy."""
    interpreter = str(Path(sys.executable).resolve())
    return [interpreter, "-B", f"/{_PROGRAMS / 'pod_program.py'}", card]


def _modules(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        unwanted = _LEFT_OUT.intersection(path.relative_to(folder).parts) or "tkinter" in path.name
        if path.is_file() and path.suffix in {".py", ".so"} and not unwanted:
            yield path


def _libraries(programs: Iterable[Path]) -> Iterator[Path]:
    """The shared libraries that these ask for, at the paths where the linker found them."""
    ldd = shutil.which("ldd") or "/usr/bin/ldd"
    listed = subprocess.run([ldd, *map(str, programs)], capture_output=True, text=True, check=True, timeout=60)
    return (Path(found[1]) for found in _LIBRARY.finditer(listed.stdout))


def _ours() -> Iterator[tuple[str, bytes]]:
    """The program, and the two modules of the product that it needs."""
    yield str(_PROGRAMS / "pod_program.py"), _source(pod_program.__file__)
    package = Path(gpu_control_plane.__file__ or "").parent
    for module in (kernel_check, libcuda):
        place = Path(module.__file__ or "").relative_to(package)
        yield str(_PROGRAMS / package.name / place), _source(module.__file__)


def _source(file: str | None) -> bytes:
    return Path(file or "").read_bytes()
