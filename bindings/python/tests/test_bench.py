"""The bench measures something."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import carina_program

BENCH = Path(__file__).parents[1] / "bench.py"

pytestmark = pytest.mark.timeout(300)


def test_bench_has_a_row_for_each_system() -> None:
    carina_program()
    short = ["--runs", "1", "--seconds", "0.2", "--json"]
    short += ["--case", "blocking", "--case", "aio-echo", "--size", "65536"]
    done = subprocess.run([sys.executable, BENCH, *short], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {"carina", "carina views", "unix socket", "carina.aio", "asyncio unix"} <= {
        row["system"] for row in rows
    }
    assert all(row["messages_per_s"] > 0 for row in rows)
