"""What blocking and asyncio calls share: sockets of the node, and QoS."""

from __future__ import annotations

import os
from pathlib import Path

from . import _native

__all__ = ["allocation", "registration", "run_directory"]

_ANY_GAP = 2**64 - 1
_ANY_LOSS = 10_000


def run_directory(run: str | os.PathLike[str] | None = None) -> Path:
    """Return the run directory of the node: ``run``, else ``$CARINA_RUN``, else ``/run/carina`` for
    root, else ``$XDG_RUNTIME_DIR/carina``, else ``/tmp/carina-UID``."""
    if run is not None:
        return Path(run)
    if chosen := os.environ.get("CARINA_RUN"):
        return Path(chosen)
    if os.geteuid() == 0:
        return Path("/run/carina")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "carina"
    return Path(f"/tmp/carina-{os.geteuid()}")


def registration(
    name: str, *, dif: str | None, run: str | os.PathLike[str] | None
) -> _native.PendingListener:
    """Request a registration from the node."""
    return _native.start_register(str(run_directory(run) / "ipc.sock"), name, dif)


def allocation(
    name: str,
    *,
    local: str | None,
    dif: str | None,
    reliable: bool,
    in_order: bool | None,
    delay_ms: float,
    jitter_ms: float,
    bandwidth_bps: int,
    loss: float | None,
    ring_bytes: int | None,
    run: str | os.PathLike[str] | None,
) -> _native.Allocation:
    """Request a flow from the node."""
    for key, value in (("delay_ms", delay_ms), ("jitter_ms", jitter_ms)):
        if not 0 <= value <= 4_000_000:
            raise ValueError(f"{key} is {value}; it must be 0 (any) to 4,000,000 milliseconds")
    if loss is None:
        loss = 0.0 if reliable else 1.0
    if not 0 <= loss <= 1:
        raise ValueError(f"loss is {loss}; it must be a share from 0 (none) to 1 (any)")
    spec = (
        round(delay_ms * 1000),
        0 if reliable else _ANY_GAP,
        bandwidth_bps,
        round(loss * _ANY_LOSS),
        reliable if in_order is None else in_order,
        round(jitter_ms * 1000),
    )
    caller = f"python.{os.getpid()}" if local is None else local
    socket = str(run_directory(run) / "ipc.sock")
    return _native.start_allocate(socket, caller, name, dif, spec, ring_bytes)
