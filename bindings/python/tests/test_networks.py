"""Labs and virtual networks of namespaces, made from Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import carina
import pytest

pytestmark = pytest.mark.timeout(300)

TWO = """system a b
eth ab 0Mbps a b
dif n a ab
dif n b ab
"""


def can_make_namespaces() -> bool:
    """Whether this process may make network namespaces."""
    child = os.fork()
    if child == 0:
        try:
            os.unshare(os.CLONE_NEWNET)  # type: ignore[attr-defined,unused-ignore]
        except AttributeError:
            os._exit(0 if os.geteuid() == 0 else 1)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


needs_namespaces = pytest.mark.skipif(
    not can_make_namespaces(), reason="this process may not make network namespaces"
)


@needs_namespaces
def test_lab_has_flows_between_its_systems(
    carina_lab: Callable[[str], carina.Lab],
) -> None:
    lab = carina_lab(TWO)
    assert lab.systems == ["a", "b"]
    with (
        carina.register("server", run=lab.run("b")) as listener,
        ThreadPoolExecutor() as pool,
    ):
        accepted = pool.submit(listener.accept, 60)
        with carina.allocate("server", dif="n", run=lab.run("a")) as caller:
            with accepted.result() as called:
                caller.send(b"over Ethernet")
                assert called.recv(timeout=60) == b"over Ethernet"
                assert called.dif == "n"
    members = lab.node("a").dif("n").show().members
    assert sorted(members) == ["n.a", "n.b"]
    assert "carina" in lab.exec("a", "carina", "--version").stdout
    with pytest.raises(carina.CommandError) as caught:
        lab.exec("a", "sh", "-c", "exit 7")
    assert caught.value.status == 7
    with pytest.raises(ValueError, match="no system 'c'"):
        lab.run("c")


def test_plan_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(carina.CommandError, match="absent"):
        carina.vnet.plan(tmp_path / "absent.toml")
    with pytest.raises(carina.CommandError, match="r9") as caught:
        carina.vnet.plan(
            {
                "vnet": {"name": "wrong"},
                "node": {"r1": {"kind": "namespace"}},
                "link": [{"ends": ["r1", "r9"], "rate": "1Mbps"}],
            }
        )
    assert (caught.value.code, caught.value.status, caught.value.final) == ("refused", 3, True)


@needs_namespaces
def test_network_is_made_used_and_removed(tmp_path: Path) -> None:
    document = {
        "vnet": {"name": f"py{os.getpid()}"},
        "defaults": {"kind": "namespace"},
        "node": {"a": {}, "b": {}},
        "link": [{"ends": ["a", "b"], "rate": "100Mbps", "as": "dif"}],
    }
    run = tmp_path / "run"
    with carina.vnet.up(document, run=run) as network:
        assert [node["name"] for node in network.status()["nodes"]] == ["a", "b"]
        answer = network.exec_json("a", "carina", "--json", "ping", "b", "-c", "2", "-i", "1ms")
        assert answer["received"] == 2
        with carina.allocate("b", run=network.run("a")) as flow:
            assert flow.dif == network.name
        names = [each["name"] for each in carina.vnet.list(run=run)]
        assert names == [network.name]
    assert carina.vnet.list(run=run) == []
