from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_control_plane.agent.driver.library_folders import cached_folders
from unit.agent.driver.trees import ld_cache

_PATHS = ("/opt/driver/lib/libcuda.so.1", "/opt/driver/lib/libnvidia-ml.so.1", "/usr/lib/libc.so.6")


@pytest.mark.parametrize("before", [b"", b"ld.so-1.7.0\0\0\0\0\0"], ids=["new", "after an older format"])
def test_folders_are_read_in_order_and_once(before: bytes) -> None:
    folders = cached_folders(ld_cache(_PATHS, before))

    assert folders == (PurePosixPath("/opt/driver/lib"), PurePosixPath("/usr/lib"))


def test_the_cache_of_this_machine_is_understood() -> None:
    cache = Path("/etc/ld.so.cache")
    if not cache.exists():
        pytest.skip("this machine's linker has no cache")

    folders = cached_folders(cache.read_bytes())

    assert folders
    assert all(Path(folder).is_dir() for folder in folders)


@given(st.binary(max_size=200), st.integers(0, 300))
def test_a_damaged_cache_never_fails(noise: bytes, cut: int) -> None:
    cached_folders(ld_cache(_PATHS)[:cut] + noise)
