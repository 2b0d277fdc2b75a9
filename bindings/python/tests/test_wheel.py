"""The wheel in a new environment of each Python of this system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RunningNode

pytestmark = pytest.mark.timeout(300)

ECHO = """
import sys, threading
import carina
with carina.register("wheel") as listener:
    def serve():
        for message in listener.accept():
            print(message.decode(), sys.version_info[:2] >= (3, 11))
    thread = threading.Thread(target=serve)
    thread.start()
    with carina.allocate("wheel") as flow:
        flow.send(b"hello")
    thread.join()
"""


def pythons() -> list[str]:
    """This Python, and later ones of $PATH and of pyenv, each minor version once."""
    found = {sys.version_info.minor: sys.executable}
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(11, 20):
        here = sorted(map(str, versions.glob(f"3.{minor}.*/bin/python3")))
        for path in [*here, shutil.which(f"python3.{minor}")]:
            if path is not None and minor not in found:
                if subprocess.run([path, "-c", "import venv"], capture_output=True).returncode == 0:
                    found[minor] = path
    return [found[minor] for minor in sorted(found)]


@pytest.mark.parametrize("python", pythons())
def test_wheel_installs_alone(python: str, node: RunningNode, tmp_path: Path) -> None:
    wheel = os.environ.get("CARINA_WHEEL")
    if wheel is None:
        pytest.skip("CARINA_WHEEL names no wheel; run bindings/python/test")
    subprocess.run([python, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    new = tmp_path / "venv/bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(new), "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", wheel], check=True)
    ran = subprocess.run([new, "-c", ECHO], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("hello True\n", "")
