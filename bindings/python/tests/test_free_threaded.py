"""The package in an interpreter without a global lock: threads share a flow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import RunningNode

HERE = Path(__file__).parents[1]
#: PyO3 supports free-threaded interpreters from 3.14 on.
NAMES = ("python3.15t", "python3.14t")

#: Four threads send to four others, which share the two ends of one flow.
THREADS = """
import sys, sysconfig, threading
import carina
assert sysconfig.get_config_var("Py_GIL_DISABLED") == 1
assert not sys._is_gil_enabled(), "the import has turned the lock on"
EACH = 5000
received = [[] for _ in range(4)]
with carina.register("threads") as listener:
    flows = []
    accepting = threading.Thread(target=lambda: flows.append(listener.accept(30)))
    accepting.start()
    caller = carina.allocate("threads", ring_bytes=65536)
    accepting.join()
    called = flows[0]
    def send(number):
        for at in range(EACH):
            caller.send(b"%d %d" % (number, at))
    def receive(number):
        try:
            while True:
                received[number].append(called.recv(timeout=60))
        except carina.FlowClosedError:
            pass
    senders = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    receivers = [threading.Thread(target=receive, args=(number,)) for number in range(4)]
    for thread in senders + receivers:
        thread.start()
    for thread in senders:
        thread.join()
    caller.close()
    for thread in receivers:
        thread.join()
every = sorted(message for messages in received for message in messages)
assert every == sorted(b"%d %d" % (number, at) for number in range(4) for at in range(EACH))
print("no message was lost or doubled")
"""


@pytest.mark.timeout(900)
def test_threads_share_a_flow_without_a_global_lock(node: RunningNode, tmp_path: Path) -> None:
    names = [os.environ.get("PYTHON_FREE_THREADED"), *NAMES]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no {' or '.join(NAMES)} here; PYTHON_FREE_THREADED names another")
    maturin = Path(sys.executable).with_name("maturin")
    if not maturin.exists():
        pytest.skip("maturin is not installed beside this interpreter")
    wheels = tmp_path / "wheels"
    build = ["build", "--release", "--locked", "-i", found, "--out", str(wheels)]
    subprocess.run([str(maturin), *build], cwd=HERE, check=True)
    subprocess.run([found, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = ["-m", "pip", "install", "--quiet", "--no-index", *map(str, wheels.glob("*.whl"))]
    subprocess.run([str(python), *install], check=True)
    done = subprocess.run([python, "-c", THREADS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "no message was lost or doubled\n"
