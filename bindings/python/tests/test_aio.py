"""Flows of asyncio, trio and anyio over a real node."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from collections.abc import Coroutine
from typing import Any

import anyio
import carina
import pytest

from conftest import RunningNode

pytestmark = pytest.mark.timeout(120)


async def pair(ring_bytes: int = 65536) -> tuple[carina.aio.Flow, carina.aio.Flow]:
    """Both ends of a flow."""
    async with await carina.aio.register("pair") as listener:
        called, caller = await asyncio.gather(
            listener.accept(), carina.aio.allocate("pair", ring_bytes=ring_bytes)
        )
    return caller, called


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine for a minute at most."""
    asyncio.run(asyncio.wait_for(main, 60))


def descriptors() -> int:
    """The number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def test_message_comes_back(echo: subprocess.Popen[str]) -> None:
    async def main() -> None:
        async with await carina.aio.allocate("echo") as flow:
            await flow.send(b"hello")
            assert await flow.recv() == b"hello"
            large = bytes(range(256)) * 20_000
            await flow.send(large)
            assert await flow.recv() == large

    run(main())


def test_iteration_ends_when_the_peer_closes(node: RunningNode) -> None:
    async def main() -> None:
        caller, called = await pair()
        messages = [b"%d" % number for number in range(5000)]

        async def send() -> None:
            async with caller:
                await caller.send_many(messages)

        task = asyncio.create_task(send())
        assert [message async for message in called] == messages
        await task
        called.close()

    run(main())


def test_thousand_cancellations_lose_nothing(node: RunningNode) -> None:
    """Sends, receives and allocations are cancelled at random points. Every message that was sent
    arrives once, whole and in order; a cancelled ``send`` has sent its message or not."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def cancelled(coroutine: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
        task = asyncio.ensure_future(coroutine)
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if chance.randrange(3) == 0:
            await asyncio.sleep(chance.random() / 1000)
        task.cancel()
        try:
            return True, await task
        except asyncio.CancelledError:
            return False, None

    async def main() -> None:
        caller, called = await pair(ring_bytes=4096)
        received: list[bytes] = []
        sure: list[int] = []

        async def send() -> None:
            for number in range(500):
                message = b"%d:" % number + b"x" * chance.choice([0, 100, 900, 5000])
                done, _ = await cancelled(caller.send(message))
                if done:
                    sure.append(number)
            await caller.send(b"end:")
            await caller.drain()

        async def receive() -> None:
            attempts = 0
            while not received or received[-1] != b"end:":
                attempts += 1
                if attempts <= 500:
                    done, message = await cancelled(called.recv())
                else:
                    done, message = True, await called.recv()
                if done:
                    received.append(message)

        await asyncio.gather(send(), receive())
        received.pop()
        numbers = [int(message.split(b":")[0]) for message in received]
        assert numbers == sorted(set(numbers)), "in order, each once"
        assert set(sure) <= set(numbers), "what was sent arrives"
        for message in received:
            assert len(message.split(b":")[1]) in (0, 100, 900, 5000), "messages are whole"
        await caller.aclose()
        await called.aclose()
        before = descriptors()
        async with await carina.aio.register("many") as listener:

            async def accept() -> None:
                async for flow in listener:
                    flow.close()

            accepting = asyncio.create_task(accept())
            for _ in range(200):
                done, flow = await cancelled(carina.aio.allocate("many"))
                if done:
                    flow.close()
            accepting.cancel()
            await asyncio.gather(accepting, return_exceptions=True)
        await asyncio.sleep(0.1)
        assert descriptors() <= before

    run(main())


def test_wait_for_a_message_loses_none(node: RunningNode) -> None:
    async def main() -> None:
        caller, called = await pair()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(called.recv(), 0.01)
        await caller.send(b"x")
        assert await called.recv() == b"x"
        waiters = [asyncio.create_task(called.recv()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        await caller.send_many([b"1", b"2"])
        assert await asyncio.gather(*waiters[1:]) == [b"1", b"2"]
        caller.close()
        with pytest.raises(carina.FlowClosedError):
            await called.recv()
        called.close()

    run(main())


def test_messages_in_place_keep_their_order_beside_copies(node: RunningNode) -> None:
    """Waits for views that are cancelled lose no message, and calls of both kinds take turns."""

    async def main() -> None:
        caller, called = await pair()
        messages = [b"%d," % number * (number % 90 * 40 + 1) for number in range(1500)]

        async def send() -> None:
            for at in range(0, len(messages), 50):
                await caller.send_many(messages[at : at + 50])
                await asyncio.sleep(0.001)
            await caller.aclose()

        sender = asyncio.create_task(send())
        received: list[bytes] = []
        while True:
            task = asyncio.create_task(called.recv_view())
            if len(received) % 3 == 0:
                await asyncio.sleep(0)
                task.cancel()
            try:
                with await task as view:
                    received.append(bytes(view))
            except asyncio.CancelledError:
                received += await called.recv_many(2)
            except carina.FlowClosedError:
                break
            if len(received) == len(messages):
                break
        assert received == messages
        with pytest.raises(carina.FlowClosedError):
            await called.recv_view()
        await sender
        called.close()

    run(main())


def test_close_ends_a_wait(node: RunningNode) -> None:
    async def main() -> None:
        caller, called = await pair()
        waiter = asyncio.create_task(caller.recv())
        await asyncio.sleep(0)
        caller.close()
        with pytest.raises(carina.NotOpenError):
            await waiter
        called.close()

    run(main())


def test_streams_carry_bytes(node: RunningNode) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = asyncio.create_task(carina.aio.serve(serve, "upper"))
        while "upper" not in [app.name for app in carina.Node().apps()]:
            await asyncio.sleep(0.01)
        reader, writer = await carina.aio.open_stream("upper")
        for text in (b"one\n", b"x" * 60_000 + b"\n"):
            writer.write(text)
            await writer.drain()
            line = b""
            while not line.endswith(b"\n"):
                line += await reader.read(1 << 20)
            assert line == text.upper()
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        server.cancel()

    run(main())


def test_protocol_receives_messages_and_the_end(echo: subprocess.Popen[str]) -> None:
    class Collect(carina.aio.Protocol):
        """Collects messages until there are three."""

        def __init__(self) -> None:
            self.messages: list[bytes] = []
            self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            self.messages.append(data)
            if len(self.messages) == 3:
                self.transport.close()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    async def main() -> None:
        transport, protocol = await carina.aio.create_flow(Collect, "echo")
        transport.writelines([b"a", b"b", b"c"])
        assert await protocol.lost is None
        assert protocol.messages == [b"a", b"b", b"c"]
        assert transport.get_extra_info("peername") == "echo"

    run(main())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_anyio_waits_for_the_descriptor(echo: subprocess.Popen[str], backend: str) -> None:
    async def main() -> None:
        with carina.allocate("echo") as flow:
            flow.send(b"hello")
            with anyio.fail_after(30):
                while (message := flow.try_recv()) is None:
                    await anyio.wait_readable(flow)
            assert message == b"hello"

    anyio.run(main, backend=backend)
