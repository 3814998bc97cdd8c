import ctypes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.driver.elf import SharedLibrary, read_library
from unit.agent.driver.trees import ARM, X86, shared_library


def _written(folder: Path, content: bytes) -> Path:
    path = folder / "library"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(("machine", "triplet"), [(X86, "x86_64-linux-gnu"), (ARM, "aarch64-linux-gnu")])
def test_a_library_tells_its_name_and_processor(tmp_path: Path, machine: int, triplet: str) -> None:
    path = _written(tmp_path, shared_library("libcuda.so.1", machine))

    assert read_library(path) == SharedLibrary(triplet, "libcuda.so.1")


def test_a_library_may_have_no_name(tmp_path: Path) -> None:
    assert read_library(_written(tmp_path, shared_library(None))) == SharedLibrary("x86_64-linux-gnu", None)


def test_a_library_that_this_process_runs_with_is_understood() -> None:
    ctypes.CDLL(None)
    maps = Path("/proc/self/maps").read_text().split()
    libc = next(Path(word) for word in maps if Path(word).name == "libc.so.6")

    library = read_library(libc)

    assert library is not None
    assert library.soname == "libc.so.6"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"INPUT(libcuda.so.1)\n", id="linker script"),
        pytest.param(shared_library("libcuda.so.1", bits=32), id="32-bit"),
        pytest.param(shared_library("libcuda.so.1", machine=8), id="another processor"),
        pytest.param(shared_library("libcuda.so.1")[:100], id="cut off"),
    ],
)
def test_what_is_no_library_for_us_is_none(tmp_path: Path, content: bytes) -> None:
    assert read_library(_written(tmp_path, content)) is None


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read_library(tmp_path / "absent") is None


@given(at=st.integers(6, 250), noise=st.binary(min_size=1, max_size=64))
def test_a_damaged_file_never_fails(tmp_path_factory: pytest.TempPathFactory, at: int, noise: bytes) -> None:
    whole = shared_library("libcuda.so.1")
    path = _written(tmp_path_factory.getbasetemp(), whole[:at] + noise + whole[at + len(noise) :])

    read_library(path)
