"""Carina's Python package beside other messaging of one host, measured in turns.

python3 bench.py [--runs N] [--seconds S] [--case CASE]... [--size BYTES]... [--first N] [--json]

Each run starts a process that sends; this process receives. A system that is not installed is left
out. `pip install uvloop pyzmq eclipse-zenoh` adds the others. CARINA_PROGRAM names the program
carina. The table has the median of the runs, the lowest and the highest, and Carina's ratio.
`carina bench bindings` runs this file.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import json
import multiprocessing
import os
import queue
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import carina

SMALL, LARGE, BATCH = 64, 1 << 20, 256
#: Seconds without a message after which a receiver takes the sender's end for lost.
SILENCE = 3
#: Sizes of messages in bytes by case. Cases of `aio` use an event loop at both ends.
SIZES = {"blocking": [SMALL, LARGE], "aio": [SMALL, LARGE], "aio-echo": [SMALL]}

Send = Callable[[str, int, float], None]
Receive = Callable[[str, int, Callable[[], None]], "Rate"]


class Rate:
    """Messages that were received from the first to the last."""

    def __init__(self) -> None:
        self.count = 0
        self.first = self.last = 0.0

    def add(self, count: int) -> None:
        """Count messages that have arrived now."""
        self.last = time.perf_counter()
        if self.count == 0:
            self.first, self.count = self.last, 1
        else:
            self.count += count

    def per_second(self) -> float:
        """Messages per second."""
        return (self.count - 1) / max(self.last - self.first, 1e-9)


def batch_of(size: int) -> int:
    """Messages that a sender sends between two looks at the clock."""
    return max(4, min(BATCH, LARGE // size))


def is_small(size: int) -> bool:
    """Whether systems send and receive messages of this size in the way for short ones."""
    return size < 1 << 16


def module(name: str) -> Any:
    """Import a module that need not be installed; ``zmq`` for ``zmq.asyncio``."""
    importlib.import_module(name)
    return sys.modules[name.split(".")[0]]


def until(seconds: float) -> Callable[[], bool]:
    """Whether the time of a run has not passed."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


# Each system sends until the time has passed, then closes; the receiver counts until the end.


def carina_send(address: str, size: int, seconds: float) -> None:
    message = bytes(size)
    batch = [message] * batch_of(size)
    going = until(seconds)
    with carina.allocate(Path(address).name, ring_bytes=8 << 20) as flow:
        while going():
            flow.send_many(batch)


def carina_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    with carina.register(Path(address).name) as listener:
        ready()
        with listener.accept() as flow:
            try:
                if is_small(size):
                    while True:
                        rate.add(len(flow.recv_many(4 * BATCH)))
                buffer = bytearray(size)
                while True:
                    flow.recv_into(buffer)
                    rate.add(1)
            except carina.FlowClosedError:
                return rate


def view_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    with carina.register(Path(address).name) as listener:
        ready()
        with listener.accept() as flow:
            try:
                while True:
                    flow.recv_view().release()
                    rate.add(1)
            except carina.FlowClosedError:
                return rate


def unix_send(address: str, size: int, seconds: float) -> None:
    kind = socket.SOCK_SEQPACKET if is_small(size) else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(address)
        message = bytes(size)
        going = until(seconds)
        while going():
            for _ in range(batch_of(size)):
                sock.sendall(message)


def unix_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    kind = socket.SOCK_SEQPACKET if is_small(size) else socket.SOCK_STREAM
    rate = Rate()
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.bind(address)
        sock.listen()
        ready()
        with sock.accept()[0] as peer:
            buffer = memoryview(bytearray(size))
            filled = 0
            while got := peer.recv_into(buffer[filled:]):
                filled = (filled + got) % size
                if filled == 0:
                    rate.add(1)
    return rate


def zmq_send(address: str, size: int, seconds: float) -> None:
    zmq: Any = module("zmq")

    with zmq.Context() as context, context.socket(zmq.PUSH) as sock:
        sock.connect(f"ipc://{address}")
        message = bytes(size)
        going = until(seconds)
        while going():
            for _ in range(batch_of(size)):
                sock.send(message, copy=False)
        sock.send(b"", copy=False)


def zmq_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    zmq: Any = module("zmq")

    rate = Rate()
    with zmq.Context() as context, context.socket(zmq.PULL) as sock:
        sock.setsockopt(zmq.RCVTIMEO, int(SILENCE * 1000))
        sock.bind(f"ipc://{address}")
        ready()
        try:
            while len(sock.recv(copy=False)) > 0:
                rate.add(1)
        except zmq.Again:
            pass
    return rate


def zenoh_session(address: str, listens: bool) -> Any:
    zenoh: Any = module("zenoh")

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    key = "listen/endpoints" if listens else "connect/endpoints"
    config.insert_json5(key, json.dumps([f"unixsock-stream/{address}"]))
    return zenoh.open(config)


def zenoh_send(address: str, size: int, seconds: float) -> None:
    zenoh: Any = module("zenoh")

    with zenoh_session(address, listens=False) as session:
        publisher = session.declare_publisher(
            "bench", congestion_control=zenoh.CongestionControl.BLOCK
        )
        while not publisher.matching_status.matching:
            time.sleep(0.01)
        message = bytes(size)
        going = until(seconds)
        while going():
            for _ in range(batch_of(size)):
                publisher.put(message)
        publisher.put(b"end")
        time.sleep(0.5)


def zenoh_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    with zenoh_session(address, listens=True) as session:
        lengths: queue.SimpleQueue[int] = queue.SimpleQueue()
        session.declare_subscriber("bench", lambda sample: lengths.put(len(sample.payload)))
        ready()
        try:
            while lengths.get(timeout=SILENCE) == size:
                rate.add(1)
        except queue.Empty:
            pass
    return rate


async def aio_carina_send(address: str, size: int, seconds: float) -> None:
    batch = [bytes(size)] * batch_of(size)
    going = until(seconds)
    async with await carina.aio.allocate(Path(address).name, ring_bytes=8 << 20) as flow:
        while going():
            await flow.send_many(batch)


async def aio_carina_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    async with await carina.aio.register(Path(address).name) as listener:
        ready()
        async with await listener.accept() as flow:
            try:
                while is_small(size):
                    rate.add(len(await flow.recv_many()))
                # As pyzmq and zenoh, without a copy of the message.
                while True:
                    (await flow.recv_view()).release()
                    rate.add(1)
            except carina.FlowClosedError:
                return rate


async def aio_carina_echo(address: str, size: int, seconds: float) -> None:
    async with await carina.aio.allocate(Path(address).name) as flow:
        going = until(seconds)
        while going():
            await flow.send(bytes(size))
            await flow.recv()


async def aio_carina_reply(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    async with await carina.aio.register(Path(address).name) as listener:
        ready()
        async with await listener.accept() as flow:
            async for message in flow:
                rate.add(1)
                await flow.send(message)
    return rate


async def aio_unix_send(address: str, size: int, seconds: float) -> None:
    _, writer = await asyncio.open_unix_connection(address)
    message = size.to_bytes(4, "big") + bytes(size)
    going = until(seconds)
    while going():
        for _ in range(batch_of(size)):
            writer.write(message)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def aio_unix_serve(
    address: str,
    ready: Callable[[], None],
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    done = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        done.set()

    async with await asyncio.start_unix_server(connected, address, limit=4 << 20):
        ready()
        await done.wait()


async def aio_unix_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while True:
            length = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(length)
            rate.add(1)

    await aio_unix_serve(address, ready, serve)
    return rate


async def aio_unix_echo(address: str, size: int, seconds: float) -> None:
    reader, writer = await asyncio.open_unix_connection(address)
    message = size.to_bytes(4, "big") + bytes(size)
    going = until(seconds)
    while going():
        writer.write(message)
        await reader.readexactly(4 + size)
    writer.close()
    await writer.wait_closed()


async def aio_unix_reply(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(head, "big"))
            rate.add(1)
            writer.write(head + body)

    await aio_unix_serve(address, ready, serve)
    return rate


async def aio_zmq_send(address: str, size: int, seconds: float) -> None:
    zmq: Any = module("zmq.asyncio")

    with zmq.asyncio.Context() as context, context.socket(zmq.PUSH) as sock:
        sock.connect(f"ipc://{address}")
        message = bytes(size)
        going = until(seconds)
        while going():
            for _ in range(batch_of(size)):
                await sock.send(message, copy=False)
        await sock.send(b"")


async def aio_zmq_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    zmq: Any = module("zmq.asyncio")

    rate = Rate()
    with zmq.asyncio.Context() as context, context.socket(zmq.PULL) as sock:
        sock.bind(f"ipc://{address}")
        ready()
        while await sock.poll(SILENCE * 1000) and len(await sock.recv(copy=False)) > 0:
            rate.add(1)
    return rate


async def aio_zmq_echo(address: str, size: int, seconds: float) -> None:
    zmq: Any = module("zmq.asyncio")

    with zmq.asyncio.Context() as context, context.socket(zmq.PAIR) as sock:
        sock.connect(f"ipc://{address}")
        going = until(seconds)
        while going():
            await sock.send(bytes(size))
            await sock.recv()
        await sock.send(b"")


async def aio_zmq_reply(address: str, size: int, ready: Callable[[], None]) -> Rate:
    zmq: Any = module("zmq.asyncio")

    rate = Rate()
    with zmq.asyncio.Context() as context, context.socket(zmq.PAIR) as sock:
        sock.bind(f"ipc://{address}")
        ready()
        while await sock.poll(SILENCE * 1000) and (message := await sock.recv()):
            rate.add(1)
            await sock.send(message)
    return rate


async def aio_zenoh_send(address: str, size: int, seconds: float) -> None:
    await asyncio.to_thread(zenoh_send, address, size, seconds)


async def aio_zenoh_receive(address: str, size: int, ready: Callable[[], None]) -> Rate:
    rate = Rate()
    loop = asyncio.get_running_loop()
    messages: asyncio.Queue[int] = asyncio.Queue()

    def arrived(sample: Any) -> None:
        loop.call_soon_threadsafe(messages.put_nowait, len(sample.payload))

    with zenoh_session(address, listens=True) as session:
        subscriber = session.declare_subscriber("bench", arrived)
        ready()
        try:
            while await asyncio.wait_for(messages.get(), SILENCE) == size:
                rate.add(1)
        except TimeoutError:
            pass
        subscriber.undeclare()
    return rate


def loop_of(loop: str, sends: Any, receives: Any) -> tuple[Send, Receive]:
    """Blocking functions that run coroutines in an event loop."""

    def run(coroutine: Any) -> Any:
        if loop == "uvloop":
            uvloop: Any = module("uvloop")

            return uvloop.run(coroutine)
        return asyncio.run(coroutine)

    return (
        lambda address, size, seconds: run(sends(address, size, seconds)),
        lambda address, size, ready: run(receives(address, size, ready)),
    )


#: A system: its name, the module that it needs, and its two functions.
System = tuple[str, str, tuple[Send, Receive]]

BLOCKING: list[System] = [
    ("carina", "carina", (carina_send, carina_receive)),
    ("carina views", "carina", (carina_send, view_receive)),
    ("unix socket", "socket", (unix_send, unix_receive)),
    ("pyzmq ipc", "zmq", (zmq_send, zmq_receive)),
    ("zenoh", "zenoh", (zenoh_send, zenoh_receive)),
]
STREAMING: list[System] = [
    ("carina.aio", "carina", loop_of("asyncio", aio_carina_send, aio_carina_receive)),
    ("carina.aio uvloop", "uvloop", loop_of("uvloop", aio_carina_send, aio_carina_receive)),
    ("asyncio unix", "asyncio", loop_of("asyncio", aio_unix_send, aio_unix_receive)),
    ("uvloop unix", "uvloop", loop_of("uvloop", aio_unix_send, aio_unix_receive)),
    ("pyzmq asyncio", "zmq", loop_of("asyncio", aio_zmq_send, aio_zmq_receive)),
    ("zenoh asyncio", "zenoh", loop_of("asyncio", aio_zenoh_send, aio_zenoh_receive)),
]
ECHOING: list[System] = [
    ("carina.aio", "carina", loop_of("asyncio", aio_carina_echo, aio_carina_reply)),
    ("carina.aio uvloop", "uvloop", loop_of("uvloop", aio_carina_echo, aio_carina_reply)),
    ("asyncio unix", "asyncio", loop_of("asyncio", aio_unix_echo, aio_unix_reply)),
    ("uvloop unix", "uvloop", loop_of("uvloop", aio_unix_echo, aio_unix_reply)),
    ("pyzmq asyncio", "zmq", loop_of("asyncio", aio_zmq_echo, aio_zmq_reply)),
]
SYSTEMS = {"blocking": BLOCKING, "aio": STREAMING, "aio-echo": ECHOING}


def send(case: str, system: int, size: int, address: str, seconds: float) -> None:
    """The process that sends."""
    SYSTEMS[case][system][2][0](address, size, seconds)


def measure(case: str, system: int, size: int, directory: Path, seconds: float) -> float:
    """One run; returns messages per second."""
    address = str(directory / f"s{time.monotonic_ns()}")
    spawn = multiprocessing.get_context("spawn")
    sender = spawn.Process(target=send, args=(case, system, size, address, seconds))
    rate = SYSTEMS[case][system][2][1](address, size, sender.start)
    sender.join(30)
    if sender.exitcode != 0 or rate.count == 0:
        sender.kill()
        raise RuntimeError(f"{case}: the sender of {SYSTEMS[case][system][0]} failed")
    return rate.per_second()


def rows(
    case: str, size: int, runs: int, first: int, seconds: float, directory: Path
) -> list[dict[str, Any]]:
    """Measure all systems of a case in turns; each run begins with another one."""
    table = []
    systems = [
        at
        for at, (_, module, _) in enumerate(SYSTEMS[case])
        if importlib.util.find_spec(module) is not None
    ]
    rates: dict[int, list[float]] = {at: [] for at in systems}
    for run in range(first, first + runs):
        start = run % len(systems)
        for at in systems[start:] + systems[:start]:
            rates[at].append(measure(case, at, size, directory, seconds))
    carinas = statistics.median(rates[0])
    for at in systems:
        median = statistics.median(rates[at])
        table.append(
            {
                "case": case,
                "size": size,
                "system": SYSTEMS[case][at][0],
                "runs": runs,
                "messages_per_s": median,
                "min": min(rates[at]),
                "max": max(rates[at]),
                "bytes_per_s": median * size,
                "carina_is_times": carinas / median,
            }
        )
    return table


def wait_for(node: subprocess.Popen[bytes]) -> None:
    """Wait until the node answers."""
    while True:
        try:
            carina.register("bench.ready").close()
            return
        except carina.NoNodeError:
            if node.poll() is not None:
                sys.exit(f"carina node ended with status {node.returncode}")
            time.sleep(0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=5, help="runs of each system (default: 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a run (default: 2)")
    parser.add_argument("--case", action="append", choices=sorted(SIZES), help="default: all")
    parser.add_argument("--size", action="append", type=int, help="bytes (default: by case)")
    parser.add_argument("--first", type=int, default=0, help="system of the first run (default: 0)")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    options = parser.parse_args()
    program = os.environ.get("CARINA_PROGRAM") or shutil.which("carina")
    if program is None:
        sys.exit("no program carina: set CARINA_PROGRAM to its path")
    # The program that started this one may have blocked these signals; the node ends by one.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    directory = Path(tempfile.mkdtemp(prefix="bench"))
    os.environ["CARINA_RUN"] = str(directory / "run")
    node = subprocess.Popen([program, "node"], stderr=subprocess.DEVNULL)
    try:
        wait_for(node)
        table = [
            row
            for case in options.case or list(SIZES)
            for size in options.size or SIZES[case]
            for row in rows(case, size, options.runs, options.first, options.seconds, directory)
        ]
    finally:
        node.terminate()
        node.wait()
        shutil.rmtree(directory)
    if options.json:
        print(json.dumps(table))
        return
    print(
        f"{'case':8} {'bytes':>8} {'system':18} {'median/s':>12} {'min':>12} {'max':>12}"
        f" {'GB/s':>7} carina x"
    )
    for row in table:
        print(
            f"{row['case']:8} {row['size']:8} {row['system']:18} {row['messages_per_s']:12,.0f}"
            f" {row['min']:12,.0f} {row['max']:12,.0f} {row['bytes_per_s'] / 1e9:7.2f}"
            f" {row['carina_is_times']:8.2f}"
        )


if __name__ == "__main__":
    main()
