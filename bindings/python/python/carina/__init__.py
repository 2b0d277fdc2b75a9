"""Flows of a Carina node: names, messages, management and virtual networks.

>>> import carina
>>> with carina.allocate("echo") as flow:        # doctest: +SKIP
...     flow.send(b"hello")
...     flow.recv()
b'hello'

``carina.aio`` has the same for asyncio, ``carina.Node`` manages the node, ``carina.vnet`` makes
virtual networks, and ``carina.lab`` makes networks of nodes for tests.
"""

from __future__ import annotations

import os

from . import aio, vnet
from ._lab import Lab, lab
from ._native import Flow, Lease, Listener
from ._request import allocation as _allocation
from ._request import registration as _registration
from .errors import (
    CarinaError,
    CommandError,
    FlowClosedError,
    FlowFailedError,
    MessageTooLargeError,
    NoAnswerError,
    NodeGoneError,
    NoNodeError,
    NotOpenError,
    ProtocolError,
    RefusedError,
    SystemCallError,
    WaitTimeoutError,
)
from .node import Node

__all__ = [
    "CarinaError",
    "CommandError",
    "Flow",
    "FlowClosedError",
    "FlowFailedError",
    "Lab",
    "Lease",
    "Listener",
    "MessageTooLargeError",
    "NoAnswerError",
    "NoNodeError",
    "Node",
    "NodeGoneError",
    "NotOpenError",
    "ProtocolError",
    "RefusedError",
    "SystemCallError",
    "WaitTimeoutError",
    "aio",
    "allocate",
    "lab",
    "register",
    "vnet",
]


def register(
    name: str,
    *,
    dif: str | None = None,
    run: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Listener:
    """Register ``name`` in ``dif`` (default: every DIF) and return the listener.

    ``run`` is the node's run directory (default: as for the program ``carina``). ``timeout`` limits
    the wait for the node's answer, in seconds (default: 120).
    """
    return _registration(name, dif=dif, run=run).finish(timeout)


def allocate(
    name: str,
    *,
    local: str | None = None,
    dif: str | None = None,
    reliable: bool = True,
    in_order: bool | None = None,
    delay_ms: float = 0,
    jitter_ms: float = 0,
    bandwidth_bps: int = 0,
    loss: float | None = None,
    ring_bytes: int | None = None,
    run: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
) -> Flow:
    """Allocate a flow to the application ``name`` and return it.

    ``local`` is the caller's name (default: ``python.PID``). ``dif`` is the DIF to use (default: the
    first that knows ``name``). A reliable flow delivers every message exactly once, in order.
    ``delay_ms``, ``jitter_ms`` and ``bandwidth_bps`` are requirements, 0 for none; ``loss`` is the
    largest share of messages that may be lost, 0 to 1. ``ring_bytes`` is the size of the ring of each
    direction, a power of two from 4 KiB to 64 MiB (default: 1 MiB). ``timeout`` limits the wait for
    the answer, in seconds (default: 120).
    """
    request = _allocation(
        name,
        local=local,
        dif=dif,
        reliable=reliable,
        in_order=in_order,
        delay_ms=delay_ms,
        jitter_ms=jitter_ms,
        bandwidth_bps=bandwidth_bps,
        loss=loss,
        ring_bytes=ring_bytes,
        run=run,
    )
    return request.finish(timeout)
