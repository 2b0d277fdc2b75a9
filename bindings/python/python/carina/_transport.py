"""A flow as a transport of asyncio: protocols and streams use it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _native
from .errors import CarinaError, FlowClosedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FlowTransport"]

_HIGH_BYTES = 64 * 1024
_BATCH = 256


class FlowTransport(asyncio.Transport):
    """A flow that calls a protocol: ``data_received`` once for each message. ``write`` sends its
    bytes as one message, or as several when they are longer than the flow carries."""

    def __init__(self, flow: _native.Flow, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._flow = flow
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._data_fd = flow.fileno()
        self._space_fd = flow.space_fileno()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high = _HIGH_BYTES
        self._low = _HIGH_BYTES // 4
        self._piece_max = min(flow.piece_max, flow.message_max or flow.piece_max)
        self._closing = False
        self._ended = False
        self._sends_end = False
        self._pauses_writing = False
        self._reads = False
        self._watches_space = False
        self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._protocol.connection_made(self)
        if not self._ended:
            self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the flow (``"flow"``) or the name of the remote application (``"peername"``)."""
        return {"flow": self._flow, "peername": self._flow.remote}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Use another protocol from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        return self._protocol

    def is_reading(self) -> bool:
        """Whether the protocol receives messages."""
        return self._reads

    def pause_reading(self) -> None:
        """Leave messages in the ring; the remote application waits when it is full."""
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._data_fd)

    def resume_reading(self) -> None:
        """Give messages to the protocol."""
        if not self._reads and not self._ended:
            self._reads = True
            self._loop.add_reader(self._data_fd, self._on_data)
            self._loop.call_soon(self._on_data)

    def _on_data(self) -> None:
        if not self._reads:
            return
        try:
            messages = self._flow.try_recv_many(_BATCH)
        except FlowClosedError:
            self._on_end()
            return
        except CarinaError as error:
            self._fail(error)
            return
        receive = getattr(self._protocol, "data_received", None)
        if receive is not None:
            for message in messages:
                receive(message)
        if messages and self._reads:
            # The descriptor becomes readable again only after a look at an empty ring.
            self._loop.call_soon(self._on_data)

    def _on_end(self) -> None:
        self.pause_reading()
        receive_end = getattr(self._protocol, "eof_received", None)
        keeps_open = receive_end() if receive_end is not None else False
        if not keeps_open:
            self.close()

    def write(self, data: Buffer) -> None:
        """Send bytes; keep them while the flow has no space."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send several pieces of bytes, in order."""
        if self._sends_end or self._closing:
            raise RuntimeError("write after write_eof or close")
        for data in list_of_data:
            view = memoryview(data).cast("B")
            for start in range(0, len(view), self._piece_max):
                piece = bytes(view[start : start + self._piece_max])
                self._unsent.append(piece)
                self._unsent_bytes += len(piece)
        self._send()
        if self._unsent_bytes > self._high and not self._pauses_writing:
            self._pauses_writing = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        try:
            sent = self._flow.try_send_many(self._unsent) if self._unsent else 0
        except CarinaError as error:
            self._fail(error)
            return
        for _ in range(sent):
            self._unsent_bytes -= len(self._unsent.popleft())
        if self._unsent and not self._watches_space:
            self._loop.add_reader(self._space_fd, self._send)
        elif self._watches_space and not self._unsent:
            self._loop.remove_reader(self._space_fd)
        self._watches_space = bool(self._unsent)
        if self._pauses_writing and self._unsent_bytes <= self._low:
            self._pauses_writing = False
            self._protocol.resume_writing()
        if not self._unsent:
            if self._closing:
                self._finish(None)
            elif self._sends_end:
                self._flow.close_sending()

    def can_write_eof(self) -> bool:
        """A flow can end one direction."""
        return True

    def write_eof(self) -> None:
        """End this direction when everything is sent."""
        if not self._sends_end:
            self._sends_end = True
            if not self._unsent:
                self._flow.close_sending()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait for space."""
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return at how many unsent bytes the protocol resumes and pauses."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set at how many unsent bytes the protocol pauses and resumes."""
        self._high = _HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def is_closing(self) -> bool:
        """Whether the transport is closing or closed."""
        return self._closing

    def close(self) -> None:
        """Close the flow when everything is sent."""
        if not self._closing:
            self._closing = True
            self.pause_reading()
            if not self._unsent:
                self._finish(None)

    def abort(self) -> None:
        """Close the flow at once."""
        self._closing = True
        self._finish(None)

    def _fail(self, error: CarinaError) -> None:
        self._closing = True
        self._finish(error)

    def _finish(self, error: CarinaError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self.pause_reading()
        if self._watches_space:
            self._loop.remove_reader(self._space_fd)
        self._flow.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
