"""The types of the package: mypy accepts it, and the stubs say what the native part has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1]

pytestmark = pytest.mark.timeout(300)


def run(*command: str) -> None:
    """Run a Python program in the directory of the package; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=PACKAGE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_package_tests_and_examples_pass_mypy_strict(tmp_path: Path) -> None:
    run("mypy", "--strict", f"--cache-dir={tmp_path}")


def test_stubs_say_what_the_native_part_has(tmp_path: Path) -> None:
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\ncache_dir = {tmp_path}\n")
    run("mypy.stubtest", f"--mypy-config-file={config}", "carina._native")
