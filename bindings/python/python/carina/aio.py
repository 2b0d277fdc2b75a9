"""Flows for asyncio, on any of its event loops.

>>> async def main() -> None:
...     async with await carina.aio.allocate("echo") as flow:
...         await flow.send(b"hello")
...         print(await flow.recv())

A task that is cancelled loses no message: a message is taken from the flow only when ``recv``
returns, and a message of which a part was sent is finished by the flow.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from . import _native
from ._request import allocation, registration
from ._transport import FlowTransport
from .errors import CarinaError, FlowClosedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Flow",
    "FlowTransport",
    "Listener",
    "Protocol",
    "allocate",
    "create_flow",
    "open_stream",
    "register",
    "serve",
]

#: Messages that are taken from the ring at once.
_BATCH = 1024
#: Bytes of messages at hand above which the ring keeps the others.
_BYTES = 4 << 20
#: Time after which a sender looks whether the flow has ended, where no descriptor reports it.
_LOOK_SECONDS = 0.25


class Flow:
    """A flow to a remote application. Make it with :func:`allocate` or :meth:`Listener.accept`."""

    def __init__(self, flow: _native.Flow) -> None:
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self._messages: deque[bytes] = deque()
        self._error: CarinaError | None = None
        self._receivers: deque[asyncio.Future[None]] = deque()
        # Receivers that wait for a message in place.
        self._viewers = 0
        self._senders: deque[asyncio.Future[None]] = deque()
        self._data_fd = flow.fileno()
        self._space_fd = flow.space_fileno()
        self._piece_max = flow.piece_max
        self._watches_data = False
        self._watches_space = False
        # Whether the ring was empty at the last look, and the descriptor reports the next message.
        self._armed = False

    @property
    def native(self) -> _native.Flow:
        """The blocking flow: names, limits and counters."""
        return self._flow

    async def recv(self) -> bytes:
        """Wait for one message and return it.

        Raises :class:`FlowClosedError` when the remote application has closed the flow and every
        message was received.
        """
        await self._filled()
        return self._messages.popleft()

    async def recv_many(self, max: int = _BATCH) -> list[bytes]:
        """Wait for one message, and return it with all others that have arrived, at most ``max``.
        """
        if max < 1:
            raise ValueError(f"max is {max}; it must be 1 or more messages")
        await self._filled()
        if len(self._messages) <= max:
            messages = list(self._messages)
            self._messages.clear()
            return messages
        return [self._messages.popleft() for _ in range(max)]

    async def recv_view(self) -> memoryview:
        """Wait for one message and return it without a copy, as :meth:`carina.Flow.recv_view` does.

        Release the view soon: space returns to the sender in the order of the ring. A message that
        was taken from the ring for another receiver is a view of its copy.
        """
        while not self._messages:
            self._raise_error()
            view = self._look_in_place()
            if view is not None:
                return view
            if self._error is None:
                self._viewers += 1
                try:
                    await self._wait(self._receivers)
                finally:
                    self._viewers -= 1
        return memoryview(self._messages.popleft())

    async def send(self, message: Buffer) -> None:
        """Send one message; wait for space."""
        while not self._flow.try_send(message):
            await self._space()
        if type(message) is not bytes or len(message) > self._piece_max:
            self._finish()

    async def send_many(self, messages: Iterable[Buffer]) -> None:
        """Send several messages, in order; wait for space. A cancelled call may have sent some."""
        left = list(messages)
        while left:
            del left[: self._flow.try_send_many(left)]
            if left:
                await self._space()
        self._finish()

    async def drain(self) -> None:
        """Wait until the ring has every message that was sent."""
        while not self._flow.try_flush():
            await self._space()

    async def aclose(self) -> None:
        """Finish the last message, then deallocate the flow."""
        try:
            if not self._flow.closed:
                await self.drain()
        except CarinaError:
            pass  # The flow has ended: nothing can be finished.
        finally:
            self.close()

    def close(self) -> None:
        """Deallocate the flow at once. Calls that wait raise :class:`NotOpenError`."""
        self._watch_data(False)
        self._watch_space(False)
        self._flow.close()
        for waiter in (*self._receivers, *self._senders):
            _wake(waiter)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """The next message; the iteration ends when the remote application closes the flow."""
        try:
            return await self.recv()
        except FlowClosedError:
            raise StopAsyncIteration from None

    def __repr__(self) -> str:
        return f"<carina.aio {self._flow!r}>"

    async def _filled(self) -> None:
        """Wait until a message is at hand; raise the error with which the flow ended."""
        while not self._messages:
            self._raise_error()
            if self._armed:
                await self._wait(self._receivers)
                continue
            self._take()
            if self._messages:
                # Others have their turn, even when the remote application sends without pause.
                await asyncio.sleep(0)
            elif self._error is None:
                await self._wait(self._receivers)

    def _raise_error(self) -> None:
        """Raise the error with which the flow ended, if it has."""
        if self._error is not None:
            raise type(self._error)(self._error.message, self._error.code, self._error.final)

    def _end(self, error: CarinaError) -> None:
        """Note the error with which the flow ended."""
        self._error = error
        self._watch_data(False)
        for waiter in (*self._receivers, *self._senders):
            _wake(waiter)

    def _look_in_place(self) -> memoryview | None:
        """Take one message from the ring in place; watch the flow when it has none."""
        try:
            view = self._flow.try_recv_view()
        except CarinaError as error:
            self._end(error)
            return None
        self._armed = view is None
        if self._armed:
            self._watch_data(True)
        return view

    def _take(self) -> None:
        """Take messages from the ring; watch the flow when it has none."""
        try:
            messages = self._flow.try_recv_many(_BATCH)
        except CarinaError as error:
            self._end(error)
            return
        self._messages.extend(messages)
        self._armed = not messages
        if self._armed:
            self._watch_data(True)

    def _is_full(self) -> bool:
        """Whether enough messages are at hand; the last one stands for the length of all."""
        count = len(self._messages)
        return count >= _BATCH or (count > 0 and count * len(self._messages[-1]) >= _BYTES)

    def _on_data(self) -> None:
        if self._is_full():
            # The ring keeps the others, and the remote application waits.
            self._watch_data(False)
            return
        if self._viewers > 0 and not self._messages:
            # The receiver takes the message itself, and watches again when the ring is empty.
            self._watch_data(False)
            for waiter in tuple(self._receivers):
                _wake(waiter)
            return
        self._take()
        if not self._armed and not self._is_full() and self._error is None:
            # Until the ring is armed again, the descriptor stays readable.
            self._take()
        for waiter, _ in zip(tuple(self._receivers), self._messages):
            _wake(waiter)

    def _on_space(self) -> None:
        try:
            done = self._flow.try_flush()
        except CarinaError:
            done = True  # The next call raises it.
        if done and not self._senders:
            self._watch_space(False)
        for waiter in tuple(self._senders):
            _wake(waiter)

    def _finish(self) -> None:
        """Let the event loop finish a message that was sent in part."""
        if not self._flow.try_flush():
            self._watch_space(True)

    async def _space(self) -> None:
        self._watch_space(True)
        if not self._watches_data and not self._messages and self._error is None:
            # This descriptor reports the end of the flow.
            self._take()
        await self._wait(self._senders)

    async def _wait(self, queue: deque[asyncio.Future[None]]) -> None:
        waiter = self._loop.create_future()
        queue.append(waiter)
        timer = None
        if not self._watches_data:
            # Nothing reports the end of the flow to a sender now: the sender looks for itself.
            timer = self._loop.call_later(_LOOK_SECONDS, _wake, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # The wake-up was for this task: hand it on.
            if waiter.done() and not waiter.cancelled():
                for other in queue:
                    if other is not waiter:
                        _wake(other)
                        break
            raise
        finally:
            queue.remove(waiter)
            if timer is not None:
                timer.cancel()

    def _watch_data(self, watch: bool) -> None:
        if watch and not self._watches_data:
            self._loop.add_reader(self._data_fd, self._on_data)
        elif self._watches_data and not watch:
            self._loop.remove_reader(self._data_fd)
        self._watches_data = watch
        self._armed = self._armed and watch

    def _watch_space(self, watch: bool) -> None:
        if watch and not self._watches_space:
            self._loop.add_reader(self._space_fd, self._on_space)
        elif self._watches_space and not watch:
            self._loop.remove_reader(self._space_fd)
        self._watches_space = watch


class Listener:
    """A registered name. Make it with :func:`register`."""

    def __init__(self, listener: _native.Listener) -> None:
        self._listener = listener
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        """The registered name."""
        return self._listener.name

    async def accept(self) -> Flow:
        """Wait for a flow that a remote application allocates, and accept it."""
        return Flow(await self._accepted())

    async def _accepted(self) -> _native.Flow:
        async with self._turn:
            return await _result(self._listener, self._listener.try_accept)

    def close(self) -> None:
        """Withdraw the name. Flows that were accepted stay."""
        self._listener.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[Flow]:
        while True:
            yield await self.accept()


class Protocol(asyncio.Protocol):
    """Base for protocols over flows: each call of ``data_received`` is one message."""


async def register(
    name: str, *, dif: str | None = None, run: str | os.PathLike[str] | None = None
) -> Listener:
    """Register ``name``, as :func:`carina.register` does."""
    request = registration(name, dif=dif, run=run)
    try:
        return Listener(await _result(request, request.try_finish))
    finally:
        request.close()


async def allocate(
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
) -> Flow:
    """Allocate a flow to ``name``, as :func:`carina.allocate` does. When the call is cancelled, the
    node gives the flow back."""
    request = allocation(
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
    try:
        return Flow(await _result(request, request.try_finish))
    finally:
        request.close()


_P = TypeVar("_P", bound=asyncio.Protocol)


async def create_flow(
    factory: Callable[[], _P],
    name: str,
    *,
    local: str | None = None,
    dif: str | None = None,
    ring_bytes: int | None = None,
    run: str | os.PathLike[str] | None = None,
) -> tuple[FlowTransport, _P]:
    """Allocate a reliable flow to ``name`` that a protocol uses, like ``loop.create_connection``.
    """
    flow = await allocate(name, local=local, dif=dif, ring_bytes=ring_bytes, run=run)
    protocol = factory()
    return FlowTransport(flow.native, protocol), protocol


async def open_stream(
    name: str,
    *,
    local: str | None = None,
    dif: str | None = None,
    run: str | os.PathLike[str] | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Allocate a reliable flow to ``name`` and use it as a stream of bytes."""
    flow = await allocate(name, local=local, dif=dif, run=run)
    return _streams(flow.native)


async def serve(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    name: str,
    *,
    dif: str | None = None,
    run: str | os.PathLike[str] | None = None,
) -> None:
    """Register ``name``, and run ``handler`` in a task of its own with the streams of each flow,
    until the call is cancelled. An exception of a handler ends its flow only."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(flow: Flow) -> None:
        reader, writer = _streams(flow.native)
        try:
            await handler(reader, writer)
        except Exception as error:
            context = {"message": f"handler of a flow to {name} failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        finally:
            writer.close()

    async with await register(name, dif=dif, run=run) as listener:
        try:
            async for flow in listener:
                task = asyncio.create_task(handle(flow))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        finally:
            for task in tasks:
                task.cancel()


def _streams(flow: _native.Flow) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport = FlowTransport(flow, protocol)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


_T = TypeVar("_T")
_Source = _native.Allocation | _native.PendingListener | _native.Listener


async def _result(source: _Source, attempt: Callable[[], _T | None]) -> _T:
    """Call ``attempt`` until it returns something, each time that ``source`` is readable."""
    loop = asyncio.get_running_loop()
    while (result := attempt()) is None:
        readable = loop.create_future()
        fd = source.fileno()
        loop.add_reader(fd, _wake, readable)
        try:
            await readable
        finally:
            loop.remove_reader(fd)
    return result


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
