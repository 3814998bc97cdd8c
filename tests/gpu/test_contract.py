"""The contract of backends holds for the real one, too: the same suite that fakes and simulations pass."""

import os
import subprocess
import sys

import pytest

from gpu.record import Record

_SUITE = "tests/unit/agent/backends/test_contract.py"


def test_the_backend_of_a_real_card_keeps_the_contract(pytestconfig: pytest.Config, record: Record) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "real", "-p", "no:cacheprovider", _SUITE],
        env={**os.environ, "GPU_TEST_REAL": "1"},
        cwd=pytestconfig.rootpath,
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert ran.returncode == 0, ran.stdout[-6000:]
    record.compare("contract suite, on the real card", ran.stdout.strip().splitlines()[-1], "")
