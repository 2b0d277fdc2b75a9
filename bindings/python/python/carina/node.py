"""Management of a node: typed calls on its control socket.

>>> node = carina.Node()
>>> [flow.remote for flow in node.flows()]
>>> node.dif("n").show().members

The types have the fields of ``docs/reference/control-api.md``. Fields that a later node adds are in
``raw``.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeAlias
from urllib.parse import quote, urlencode

from ._request import run_directory
from .errors import NoAnswerError, NodeGoneError, NoNodeError, ProtocolError, RefusedError

__all__ = [
    "Applied",
    "AppInfo",
    "Catalogue",
    "Dif",
    "DifInfo",
    "DifView",
    "Event",
    "FlowInfo",
    "IpcpInfo",
    "Member",
    "Neighbour",
    "Node",
    "NodeInfo",
    "RibObject",
    "VmInfo",
]

Json: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class _Reply:
    """A reply of the node. ``raw`` is the whole JSON object."""

    raw: Mapping[str, Json] = field(repr=False, compare=False)

    _names: ClassVar[Mapping[str, str]] = {"kind": "type", "is_final": "final"}

    @classmethod
    def of(cls, raw: Json) -> Self:
        """Make the typed reply of a JSON object."""
        if not isinstance(raw, dict):
            raise ProtocolError(f"the node sent {raw!r} for {cls.__name__}", "protocol", True)
        values: dict[str, Json] = {"raw": raw}
        for each in fields(cls):
            name = cls._names.get(each.name, each.name)
            if each.name != "raw" and name in raw:
                values[each.name] = raw[name]
            elif (
                each.name != "raw" and each.default is MISSING and each.default_factory is MISSING
            ):
                text = f"the node sent no {name} for {cls.__name__}"
                raise ProtocolError(text, "protocol", True)
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class NodeInfo(_Reply):
    """The node."""

    name: str
    version: str
    pid: int
    uptime_ms: int
    run_dir: str
    ipcps: int
    apps: int
    flows: int
    vms: int


@dataclass(frozen=True, kw_only=True)
class Neighbour(_Reply):
    """A lower flow of a member, to a neighbour in its DIF."""

    dif: str
    remote: str
    state: str
    neighbour: str | None = None
    port: int | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Member(_Reply):
    """Membership of an IPCP in a normal DIF."""

    role: str
    over: list[str]
    state: str
    step: str
    failures: int
    neighbours: list[str]
    n1: list[Json]
    dialect: str = "native"
    last_error: str | None = None
    is_final: bool = False
    address: int | None = None


@dataclass(frozen=True, kw_only=True)
class IpcpInfo(_Reply):
    """An IPC process of the node."""

    id: int
    name: str
    kind: str
    dif: str
    state: str
    flows: int
    side: str | None = None
    reason: str | None = None
    peer: str | None = None
    vmpi_id: int | None = None
    worker: int | None = None
    vm: str | None = None
    peer_names: list[str] = field(default_factory=list)

    @property
    def member(self) -> Member | None:
        """Its membership; None when the DIF is not a normal one."""
        member = self.raw.get("member")
        return None if member is None else Member.of(member)


@dataclass(frozen=True, kw_only=True)
class AppInfo(_Reply):
    """An application that is registered on this system or at a peer."""

    name: str
    difs: list[str]
    via: str | None = None
    pid: int | None = None
    uid: int | None = None
    pending: int = 0


@dataclass(frozen=True, kw_only=True)
class FlowInfo(_Reply):
    """A flow of an application of this system."""

    port: int
    local: str
    remote: str
    dif: str
    ipcp: str
    state: str
    spec: Mapping[str, Json]
    mode: str
    direct: bool
    pid: int | None = None
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class DifInfo(_Reply):
    """A DIF of which this system is a member."""

    name: str
    kind: str
    ipcps: list[str]
    names: list[str]
    dialect: str | None = None


@dataclass(frozen=True, kw_only=True)
class RibObject(_Reply):
    """An object of a member's resource information base."""

    path: str
    kind: str
    fields: Mapping[str, Json]

    _names: ClassVar[Mapping[str, str]] = {"kind": "class"}


@dataclass(frozen=True, kw_only=True)
class Catalogue(_Reply):
    """The policies of a dialect, and those in force in a DIF."""

    policies: list[Json]
    in_force: list[Json] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class VmInfo(_Reply):
    """A VM port."""

    name: str
    dif: str
    region_bytes: int
    qemu_socket: str
    state: str
    vmpi_id: int
    qemu_args: list[str]
    vmpi: str = "ivshmem"
    listen_socket: str | None = None
    qemu_pid: int | None = None
    internet: Mapping[str, Json] | None = None


@dataclass(frozen=True, kw_only=True)
class Event(_Reply):
    """An event of the node's journal."""

    seq: int
    at_ms: int
    kind: str
    subject: str
    detail: str = ""

    _names: ClassVar[Mapping[str, str]] = {}


@dataclass(frozen=True, kw_only=True)
class Applied(_Reply):
    """What applying a configuration changed."""

    created: list[str]
    destroyed: list[str]
    unchanged: list[str]
    rules: int
    extended: list[str] = field(default_factory=list)
    retracted: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DifView:
    """What a member of a DIF knows, as ``carina dif show`` prints it."""

    #: Fields of the DIF: address, lengths of fields, largest PDU.
    dif: Mapping[str, Json]
    #: Members by name: address, and whether they are reachable.
    members: Mapping[str, Mapping[str, Json]]
    #: Neighbours by name: address, cost.
    neighbours: Mapping[str, Mapping[str, Json]]
    #: Registered names, and the members where they are.
    directory: Mapping[str, Mapping[str, Json]]
    #: Next hops by destination address.
    forwarding: Mapping[str, Mapping[str, Json]]
    #: QoS cubes by number.
    cubes: Mapping[str, Mapping[str, Json]]
    #: Lower flows by number: neighbour, PDUs and bytes.
    n1: Mapping[str, Mapping[str, Json]]
    #: Policies by component.
    policies: Mapping[str, Mapping[str, Json]]


class Dif:
    """A DIF of which the node's system is a member. Make it with :meth:`Node.dif`."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name

    def info(self) -> DifInfo:
        """Return its type, its IPCPs on this system and its names."""
        for info in self.node.difs():
            if info.name == self.name:
                return info
        raise RefusedError(f"no DIF is named {self.name!r}", "not-found")

    def show(self, member: str | None = None) -> DifView:
        """Return what ``member`` (default: the one of this system) knows."""

        def below(path: str, scope: int = 1) -> dict[str, Mapping[str, Json]]:
            try:
                found = self.rib(path, scope=scope, member=member)
            except RefusedError as error:
                if error.code != "not-found" or path == "/members":
                    raise
                return {}  # A member alone has no neighbours and no routes.
            names = {each.path: each.path.removeprefix(path + "/") for each in found}
            return {
                names[each.path].replace("%2F", "/").replace("%25", "%"): each.fields
                for each in found
                if each.path != path
            }

        return DifView(
            dif=self.rib("/dif", scope=0, member=member)[0].fields,
            members=below("/members"),
            neighbours=below("/neighbours"),
            directory=below("/directory"),
            forwarding=below("/data-transfer/forwarding"),
            cubes=below("/dif/cubes"),
            n1=below("/data-transfer/n1"),
            policies=below("/policies"),
        )

    def rib(
        self, path: str = "/", *, scope: int = 0, member: str | None = None, where: str = ""
    ) -> list[RibObject]:
        """Return the RIB object at ``path`` and what is below it to the depth ``scope``. ``where``
        is a filter such as ``class=member``."""
        query = {"path": path, "scope": str(scope), "dif": self.name}
        if member is not None:
            query["member"] = member
        if where:
            query["filter"] = where
        reply = self.node.get("/v1/rib?" + urlencode(query, quote_via=quote))
        return [RibObject.of(each) for each in reply]

    def write(self, path: str, member: str | None = None, **values: Json) -> list[RibObject]:
        """Write fields of the RIB object at ``path``; ``_`` in names of fields stands for ``-``
        only where the field is written so."""
        body: dict[str, Json] = {"dif": self.name, "path": path, "fields": values}
        if member is not None:
            body["member"] = member
        return [RibObject.of(each) for each in self.node.post("/v1/rib", body)]

    def policies(self) -> Catalogue:
        """Return the policies of the DIF's dialect, and those in force."""
        return Catalogue.of(self.node.get("/v1/policies?dif=" + quote(self.name, safe="")))

    def extend(self, over: str, **options: Json) -> IpcpInfo:
        """Add the N-1 DIF ``over``."""
        return IpcpInfo.of(self.node.post(f"{self._path}/over", {"over": over, **options}))

    def retract(self, over: str, ipcp: str | None = None) -> IpcpInfo:
        """Remove the N-1 DIF ``over``."""
        path = f"{self._path}/over/{quote(over, safe='')}{_of(ipcp)}"
        return IpcpInfo.of(self.node.delete(path))

    def expel(self, member: str) -> None:
        """Expel another member."""
        self.node.delete(f"{self._path}/members/{quote(member, safe='')}")

    def leave(self, ipcp: str | None = None) -> None:
        """Leave the DIF; flows over it end."""
        self.node.delete(self._path + _of(ipcp))

    @property
    def _path(self) -> str:
        return "/v1/difs/" + quote(self.name, safe="")

    def __repr__(self) -> str:
        return f"carina.Node({str(self.node.run)!r}).dif({self.name!r})"


class Node:
    """The control socket of a node. Each call is one request; the object holds no connection."""

    def __init__(
        self, run: str | os.PathLike[str] | None = None, *, timeout: float = 60.0
    ) -> None:
        """Use the node with the run directory ``run`` (default: as for the program ``carina``).
        ``timeout`` limits each call, in seconds."""
        self.run = run_directory(run)
        self.timeout = timeout

    def info(self) -> NodeInfo:
        """Return the node's name, version, process and counts."""
        return NodeInfo.of(self.get("/v1/node"))

    def ipcps(self) -> list[IpcpInfo]:
        """Return the IPC processes."""
        return [IpcpInfo.of(each) for each in self.get("/v1/ipcps")]

    def create_ipcp(self, name: str, kind: str, dif: str, **options: Json) -> IpcpInfo:
        """Create an IPC process; the options are those of ``[[ipcp]]`` of the configuration."""
        body = {"name": name, "type": kind, "dif": dif, **options}
        return IpcpInfo.of(self.post("/v1/ipcps", body))

    def destroy_ipcp(self, name: str) -> None:
        """Destroy an IPC process; flows over it end."""
        self.delete("/v1/ipcps/" + quote(name, safe=""))

    def apps(self) -> list[AppInfo]:
        """Return the applications that are registered here and at peers."""
        return [AppInfo.of(each) for each in self.get("/v1/apps")]

    def flows(self) -> list[FlowInfo]:
        """Return the flows."""
        return [FlowInfo.of(each) for each in self.get("/v1/flows")]

    def close_flow(self, port: int) -> None:
        """End a flow; both applications learn it."""
        self.delete(f"/v1/flows/{port}")

    def difs(self) -> list[DifInfo]:
        """Return the DIFs, in the order in which they are searched."""
        return [DifInfo.of(each) for each in self.get("/v1/difs")]

    def dif(self, name: str) -> Dif:
        """Return the DIF of this name, for further calls."""
        return Dif(self, name)

    def create_dif(self, name: str, over: list[str], **options: Json) -> IpcpInfo:
        """Create a DIF over others; return its first member."""
        body = {"name": name, "role": "create", "over": over, **options}
        return IpcpInfo.of(self.post("/v1/difs", body))

    def join_dif(self, name: str, over: list[str], **options: Json) -> IpcpInfo:
        """Join a DIF; return the member, which may still be joining."""
        body = {"name": name, "role": "join", "over": over, **options}
        return IpcpInfo.of(self.post("/v1/difs", body))

    def policies(self, dialect: str = "native") -> Catalogue:
        """Return the policies of a dialect: ``native``, ``rlite`` or ``irati``."""
        return Catalogue.of(self.get("/v1/policies?dialect=" + quote(dialect)))

    def vms(self) -> list[VmInfo]:
        """Return the VM ports."""
        return [VmInfo.of(each) for each in self.get("/v1/vms")]

    def create_vm(self, name: str, **options: Json) -> VmInfo:
        """Create a VM port; the options are those of ``VmCreate``."""
        return VmInfo.of(self.post("/v1/vms", {"name": name, **options}))

    def destroy_vm(self, name: str) -> None:
        """Remove a VM port; its QEMU is not touched."""
        self.delete("/v1/vms/" + quote(name, safe=""))

    def apply(self, configuration: str) -> Applied:
        """Change the node so that it matches a configuration in TOML."""
        return Applied.of(self._call("POST", "/v1/apply", configuration.encode()))

    def events(self, since: int = 0, *, follow: bool = False) -> Iterator[Event]:
        """Yield the events after number ``since``; with ``follow``, wait for further ones."""
        while True:
            wait_ms = int(min(self.timeout / 2, 10) * 1000) if follow else 0
            reply = self.get(f"/v1/events?since={since}&wait_ms={wait_ms}")
            yield from (Event.of(each) for each in reply["events"])
            since = reply["next"]
            if not follow:
                return

    def get(self, path: str) -> Json:
        """Send GET, and return the JSON of the reply."""
        return self._call("GET", path, None)

    def post(self, path: str, body: Json) -> Json:
        """Send POST with a JSON body, and return the JSON of the reply."""
        return self._call("POST", path, json.dumps(body).encode())

    def delete(self, path: str) -> Json:
        """Send DELETE, and return the JSON of the reply."""
        return self._call("DELETE", path, None)

    def _call(self, method: str, path: str, body: bytes | None) -> Json:
        sock = str(self.run / "control.sock")
        connection = _Connection(sock, self.timeout)
        try:
            try:
                connection.connect()
            except OSError as error:
                text = f"no node answers at {sock}: {error}; start one with `carina node`"
                raise NoNodeError(text, "no-node") from error
            connection.request(method, path, body)
            response = connection.getresponse()
            text = response.read().decode()
        except TimeoutError as error:
            asked = f"the node has not answered {method} {path} within {self.timeout} s"
            raise NoAnswerError(asked, "no-answer") from error
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, NoNodeError):
                raise
            raise NodeGoneError("the node has ended, or has closed the connection", "node-gone") \
                from error
        finally:
            connection.close()
        try:
            reply = json.loads(text) if text else None
        except ValueError as error:
            raise ProtocolError(f"{method} {path}: no JSON: {text[:200]!r}") from error
        if response.status >= 400:
            raise _refused(reply, method, path, response.status)
        return reply

    def __repr__(self) -> str:
        return f"carina.Node({str(self.run)!r})"


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("carina", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _refused(reply: Json, method: str, path: str, status: int) -> RefusedError:
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict):
        return RefusedError(f"{method} {path}: HTTP status {status}", "unknown")
    return RefusedError(
        str(error.get("message")), str(error.get("code")), bool(error.get("final", False))
    )


def _of(ipcp: str | None) -> str:
    return "" if ipcp is None else "?ipcp=" + quote(ipcp, safe="")
