"""The examples do what their text says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RunningNode, line_of
from test_networks import needs_namespaces

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.timeout(300)


def test_echo_client_talks_to_echo_server(node: RunningNode) -> None:
    server = subprocess.Popen(
        [sys.executable, EXAMPLES / "echo_server.py", "echo.example"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    node.processes.append(server)
    assert line_of(server) == "registered as echo.example"
    client = subprocess.run(
        [sys.executable, EXAMPLES / "echo_client.py", "echo.example", "hello", "two words"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert client.stdout.splitlines() == ["port 1 in DIF local", "hello", "two words"], client
    assert line_of(server) == "client.example closed its flow"


def six(directory: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    """Run the example of six nodes, and check what it prints and plots."""
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("CARINA_RUN", str(directory / "run"))
    picture = directory / "six.svg"
    done = subprocess.run(
        [sys.executable, EXAMPLES / "six.py", *options, picture], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "sixpy: ready after" in done.stdout
    assert all(f"{hops} hops" in done.stdout for hops in (1, 2, 3))
    assert "<svg" in picture.read_text()


@needs_namespaces
def test_six_nodes_are_measured_and_plotted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    six(tmp_path, monkeypatch)


@needs_namespaces
@pytest.mark.skipif(
    shutil.which("qemu-system-x86_64") is None,
    reason="QEMU is not installed; the Debian package is qemu-system-x86",
)
@pytest.mark.timeout(900)
def test_six_virtual_machines_are_measured_and_plotted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    six(tmp_path, monkeypatch, "--vms")
