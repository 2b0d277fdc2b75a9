"""Management of a real node."""

from __future__ import annotations

import subprocess

import carina
import pytest

from conftest import RunningNode

pytestmark = pytest.mark.timeout(60)

CONFIGURATION = """
[[ipcp]]
name = "lo2"
type = "loopback"
dif = "below"

[[dif]]
name = "n"
role = "create"
over = ["below"]
"""


def test_node_lists_what_it_has(node: RunningNode, echo: subprocess.Popen[str]) -> None:
    managed = carina.Node()
    assert managed.info().pid == node.process.pid
    with carina.allocate("echo", local="me") as flow:
        (listed,) = [each for each in managed.flows() if each.local == "me"]
        assert (listed.remote, listed.port, listed.direct) == ("echo", flow.port, True)
        managed.close_flow(flow.port)
        with pytest.raises(carina.CarinaError) as caught:
            flow.recv(timeout=10)
        assert caught.value.code in ("flow-failed", "closed")
    assert "echo" in [app.name for app in managed.apps()]
    assert [ipcp.kind for ipcp in managed.ipcps()] == ["loopback"]
    kinds = [event.kind for event in managed.events()]
    assert "app-registered" in kinds and "flow-allocated" in kinds


def test_dif_is_made_shown_and_left(node: RunningNode) -> None:
    managed = carina.Node()
    applied = managed.apply(CONFIGURATION)
    assert "lo2" in applied.created
    dif = managed.dif("n")
    assert dif.info().kind == "normal"
    view = dif.show()
    (name,) = view.members
    assert view.members[name]["is_reachable"] is True
    assert view.dif["name"] == "n"
    assert "reliable" in [cube["name"] for cube in view.cubes.values()]
    assert view.policies["routing"]["name"] == "link-state"
    member = next(ipcp for ipcp in managed.ipcps() if ipcp.dif == "n").member
    assert member is not None and member.state == "enrolled"
    assert "routing" in [each["component"] for each in dif.policies().policies]
    dif.leave()
    with pytest.raises(carina.RefusedError) as caught:
        dif.info()
    assert caught.value.code == "not-found"


def test_refusals_have_the_codes_of_the_node(node: RunningNode) -> None:
    managed = carina.Node()
    with pytest.raises(carina.RefusedError) as caught:
        managed.destroy_ipcp("absent")
    assert caught.value.code == "not-found"
    with pytest.raises(carina.RefusedError) as caught:
        managed.apply("nonsense = 3")
    assert (caught.value.code, caught.value.final) == ("bad-config", True)
    node.kill()
    with pytest.raises(carina.NoNodeError, match="no node answers"):
        managed.info()
