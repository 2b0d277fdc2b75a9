"""Every test has its own node, in its own run directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import carina
import pytest


def carina_program() -> str:
    """The program under test: ``$CARINA_PROGRAM``, else ``carina`` of ``$PATH``."""
    found = os.environ.get("CARINA_PROGRAM") or shutil.which("carina")
    if found is None:
        pytest.skip("no program carina: set CARINA_PROGRAM to its path")
    return found


class RunningNode:
    """A node of the test, and processes that use it."""

    def __init__(self, directory: Path) -> None:
        self.run = directory / "run"
        self.processes: list[subprocess.Popen[str]] = []
        log = (directory / "log").open("w")
        self.process = subprocess.Popen(
            [carina_program(), "node", "--run", str(self.run)], stderr=log, stdout=log
        )
        patience = time.monotonic() + 30
        while not self._answers():
            assert self.process.poll() is None, (directory / "log").read_text()
            assert time.monotonic() < patience, "the node does not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            carina.register("test.ready", run=self.run).close()
            carina.Node(self.run).info()
        except carina.NoNodeError:
            return False
        return True

    def python(self, code: str) -> subprocess.Popen[str]:
        """Start a Python process with this node."""
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(code)],
            env=os.environ | {"CARINA_RUN": str(self.run)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """End the node by kill -9."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End the node and all processes."""
        self.process.kill()
        self.process.wait()
        for process in self.processes:
            process.kill()
            process.communicate()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    """A node that this process uses by default."""
    directory = Path(tempfile.mkdtemp(prefix="cpy"))
    running = RunningNode(directory)
    monkeypatch.setenv("CARINA_RUN", str(running.run))
    yield running
    running.end()
    shutil.rmtree(directory)


def line_of(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


ECHO = """
import carina, threading
def serve(flow):
    for message in flow:
        flow.send(message)
with carina.register("echo") as listener:
    print("ready")
    for flow in listener:
        threading.Thread(target=serve, args=(flow,), daemon=True).start()
"""


@pytest.fixture
def echo(node: RunningNode) -> subprocess.Popen[str]:
    """A process that sends back what it receives, as ``echo``."""
    process = node.python(ECHO)
    assert line_of(process) == "ready", process.stderr and process.stderr.read()
    return process


class Events:
    """Prints the result of each test as one line of JSON, in the form of ``go doc test2json``, for
    ``cargo xtask test``."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print what became known of one phase of a test."""
        # The call decides; the phases before and after it count only when they do not pass.
        if report.when != "call" and report.passed:
            return
        action = {"passed": "pass", "failed": "fail", "skipped": "skip"}[report.outcome]
        text = report.longreprtext
        if report.skipped and isinstance(report.longrepr, tuple):
            text = "SKIP: " + report.longrepr[2].removeprefix("Skipped: ")
        test = report.nodeid.replace("/", ".")
        for event in ({"Action": "output", "Output": text + "\n"}, {"Action": action}):
            # A dot of pytest's may stand before it.
            self.terminal.write_line("\n" + json.dumps(event | {"Test": test}))


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print results for ``cargo xtask test`` where it asks for them."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CARINA_TEST_EVENTS") and isinstance(terminal, pytest.TerminalReporter):
        config.pluginmanager.register(Events(terminal), "events")
