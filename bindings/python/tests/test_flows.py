"""Blocking flows over a real node, between processes and within one."""

from __future__ import annotations

import select
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import carina
import pytest

from conftest import RunningNode

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def pair(node: RunningNode) -> tuple[carina.Flow, carina.Flow]:
    """Both ends of a flow."""
    with carina.register("pair") as listener, ThreadPoolExecutor() as pool:
        called = pool.submit(listener.accept, 10)
        caller = carina.allocate("pair", local="caller", ring_bytes=65536)
        return caller, called.result()


def test_message_comes_back(echo: subprocess.Popen[str]) -> None:
    with carina.allocate("echo") as flow:
        for message in (b"hello", b"", bytes(range(256)) * 9000):
            flow.send(message)
            assert flow.recv(timeout=10) == message
        assert (flow.remote, flow.reliable, flow.closed) == ("echo", True, False)
    assert flow.closed
    with pytest.raises(carina.NotOpenError):
        flow.send(b"late")


def test_listener_knows_who_calls(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    assert (called.local, called.remote) == ("pair", "caller")
    assert called.dif == caller.dif
    assert "caller -> pair" in repr(caller)


def test_many_messages_keep_order_and_boundaries(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    messages = [b"%d" % number * (number % 50) for number in range(20_000)]
    thread = threading.Thread(target=caller.send_many, args=(messages,))
    thread.start()
    received: list[bytes] = []
    while len(received) < len(messages):
        received += called.recv_many(max=777, timeout=10)
    thread.join()
    assert received == messages


def test_lists_of_long_messages_are_short(node: RunningNode) -> None:
    half = bytes(1 << 19)
    with carina.register("long") as listener, ThreadPoolExecutor() as pool:
        called = pool.submit(listener.accept, 10)
        with carina.allocate("long", ring_bytes=8 << 20) as caller:
            caller.send_many([half] * 5)
            with called.result() as receiver:
                # A list ends with the message that completes 1 MiB.
                lengths = [len(receiver.recv_many(timeout=10)) for _ in range(3)]
                assert lengths == [2, 2, 1]


def test_message_in_fragments_is_received_into_a_buffer(
    pair: tuple[carina.Flow, carina.Flow],
) -> None:
    caller, called = pair
    message = bytes(range(256)) * 4096
    assert len(message) > caller.piece_max
    thread = threading.Thread(target=caller.send_many, args=([message, b"next"],))
    thread.start()
    buffer = bytearray(len(message))
    assert called.recv_into(buffer, timeout=10) == len(message)
    assert buffer == message
    assert called.recv_into(buffer, timeout=10) == 4
    thread.join()


def test_iteration_ends_when_the_peer_closes(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    caller.send_many([b"a", b"b"])
    caller.close()
    assert list(called) == [b"a", b"b"]
    with pytest.raises(carina.FlowClosedError) as caught:
        called.recv()
    assert caught.value.code == "closed"
    assert isinstance(caught.value, EOFError)


def test_recv_into_fills_a_buffer(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    buffer = bytearray(100)
    caller.send(memoryview(b"xxhello")[2:])
    assert called.recv_into(buffer, timeout=10) == 5
    assert buffer[:5] == b"hello"
    caller.send(b"1234")
    assert called.recv_into(memoryview(buffer)[50:]) == 4
    assert buffer[50:54] == b"1234"
    caller.send(b"x" * 101)
    with pytest.raises(carina.MessageTooLargeError):
        called.recv_into(buffer)
    with pytest.raises(BufferError):
        called.recv_into(b"read-only")


def test_views_are_of_the_ring_until_released(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    caller.send_many([b"first", b"second"])
    first, second = called.recv_view(), called.recv_view(timeout=10)
    assert isinstance(first.obj, carina.Lease)
    assert first.obj.is_shared and first.readonly
    assert (bytes(first), bytes(second)) == (b"first", b"second")
    part = second[1:3]
    first.release()
    second.release()
    assert bytes(part) == b"ec"
    called.close()
    assert bytes(part) == b"ec", "the view keeps the memory after the flow is closed"


def test_held_views_stop_the_sender_and_release_wakes_it(
    pair: tuple[carina.Flow, carina.Flow],
) -> None:
    caller, called = pair
    size = caller.piece_max
    sent = 0
    while caller.try_send(bytes([sent]) * size):
        sent += 1
    views = [called.recv_view() for _ in range(sent)]
    with pytest.raises(carina.WaitTimeoutError):
        caller.send(b"x" * size, timeout=0.2)
    views[-1].release()
    assert not caller.try_send(b"x" * size), "space returns in the order of the ring"
    assert [view[0] for view in views[:-1]] == list(range(sent - 1))
    for view in views:
        view.release()
    caller.send(b"x" * size, timeout=10)
    assert called.recv(timeout=10) == b"x" * size


def test_descriptor_reports_messages_and_end(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    assert called.try_recv() is None
    assert select.select([called], [], [], 0)[0] == []
    caller.send(b"x")
    assert select.select([called], [], [], 10)[0] == [called]
    assert called.try_recv() == b"x"
    assert called.try_recv() is None
    caller.close()
    assert select.select([called], [], [], 10)[0] == [called]
    with pytest.raises(carina.FlowClosedError):
        called.try_recv()


def test_full_flow_times_out_and_loses_nothing(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    large = bytes(range(256)) * 1000
    with pytest.raises(carina.WaitTimeoutError):
        caller.send(large, timeout=0.1)
    # The message was begun, so the flow finishes it before the next one.
    thread = threading.Thread(target=caller.send, args=(b"next",))
    thread.start()
    assert called.recv(timeout=10) == large
    assert called.recv(timeout=10) == b"next"
    thread.join()


def test_wait_ends_at_its_timeout(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, _ = pair
    with pytest.raises(TimeoutError) as caught:
        caller.recv(timeout=0.05)
    assert isinstance(caught.value, carina.CarinaError)
    assert caught.value.code == "timeout"
    with pytest.raises(ValueError, match="timeout is -1"):
        caller.recv(timeout=-1)


def test_close_in_another_thread_ends_a_wait(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, _ = pair
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            caller.recv()
        except carina.CarinaError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.05)
    caller.close()
    thread.join(10)
    assert isinstance(errors[0], carina.NotOpenError)


def test_half_close_leaves_the_other_direction(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    caller.send(b"question")
    caller.close_sending()
    assert list(called) == [b"question"]
    called.send(b"answer")
    assert caller.recv(timeout=10) == b"answer"


def test_refusals_have_codes(node: RunningNode) -> None:
    with pytest.raises(carina.RefusedError) as unknown:
        carina.allocate("nobody.here")
    assert unknown.value.code == "unknown-name"
    with carina.register("taken"):
        with pytest.raises(carina.RefusedError) as taken:
            carina.register("taken")
    assert (taken.value.code, taken.value.final) == ("duplicate-name", True)
    with pytest.raises(carina.RefusedError, match="bad"):
        carina.allocate("bad\nname")
    with pytest.raises(ValueError, match="delay_ms is -1"):
        carina.allocate("x", delay_ms=-1)
    with pytest.raises(carina.RefusedError):
        carina.allocate("x", ring_bytes=5)


def test_missing_node_is_named(tmp_path: object) -> None:
    with pytest.raises(carina.NoNodeError, match="no node answers") as caught:
        carina.register("x", run=str(tmp_path))
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.code == "no-node"


def test_counters_count_messages(pair: tuple[carina.Flow, carina.Flow]) -> None:
    caller, called = pair
    caller.send_many([b"12", b"345"])
    called.recv_many(timeout=10)
    assert caller.stats()["messages_sent"] == 2
    assert called.stats()["bytes_received"] == 5
