"""What the death of a node or of a peer, and Ctrl-C, do to calls that wait."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import threading
import time

import carina
import pytest

from conftest import RunningNode, line_of

pytestmark = pytest.mark.timeout(60)

SILENT = """
import carina, time
with carina.register("silent") as listener:
    print("ready")
    flow = listener.accept()
    print("accepted")
    time.sleep(1000)
"""


@pytest.fixture
def silent(node: RunningNode) -> subprocess.Popen[str]:
    """A process that accepts a flow as ``silent`` and sends nothing."""
    process = node.python(SILENT)
    assert line_of(process) == "ready"
    return process


def fills(flow: carina.Flow) -> None:
    """Send until the ring is full, and wait."""
    while True:
        flow.send(bytes(1000))


WAITS = {
    "recv": lambda flow: flow.recv(),
    "recv_many": lambda flow: flow.recv_many(),
    "recv_into": lambda flow: flow.recv_into(bytearray(10)),
    "recv_view": lambda flow: flow.recv_view(),
    "iteration": lambda flow: next(flow),
    "send": fills,
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("victim", ["node", "peer"])
def test_kill_ends_a_wait(
    node: RunningNode, silent: subprocess.Popen[str], wait: str, victim: str
) -> None:
    flow = carina.allocate("silent")
    killed: list[float] = []

    def kill() -> None:
        time.sleep(0.2)
        killed.append(time.monotonic())
        if victim == "node":
            node.kill()
        else:
            silent.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    expected: type[carina.CarinaError] = (
        carina.NodeGoneError if victim == "node" else carina.FlowFailedError
    )
    with pytest.raises(expected) as caught:
        WAITS[wait](flow)
    thread.join()
    assert issubclass(expected, ConnectionError)
    assert caught.value.code == ("node-gone" if victim == "node" else "flow-failed")
    # Where the machine is slow, the limit of the test catches a wait that does not end.
    print(f"the error came {time.monotonic() - killed[0]:.3f} s after the kill")


@pytest.mark.parametrize("victim", ["node", "peer"])
def test_kill_ends_tasks(node: RunningNode, silent: subprocess.Popen[str], victim: str) -> None:
    async def main() -> None:
        flow = await carina.aio.allocate("silent")

        async def fill() -> None:
            while True:
                await flow.send(bytes(1000))

        tasks = [asyncio.create_task(flow.recv()), asyncio.create_task(fill())]
        await asyncio.sleep(0.2)
        if victim == "node":
            node.kill()
        else:
            silent.send_signal(signal.SIGKILL)
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        expected = carina.NodeGoneError if victim == "node" else carina.FlowFailedError
        assert [type(end) for end in ends] == [expected, expected]
        flow.close()

    asyncio.run(main())


def test_kill_of_the_node_ends_accept(node: RunningNode) -> None:
    with carina.register("waiting") as listener:
        thread = threading.Timer(0.2, node.kill)
        thread.start()
        with pytest.raises(carina.NodeGoneError):
            listener.accept()
        thread.join()
    with pytest.raises(carina.NoNodeError):
        carina.register("waiting")


@pytest.mark.parametrize(
    "call",
    [
        "flow.recv()",
        "flow.recv_into(bytearray(10))",
        "list(flow)",
        "[flow.send(bytes(1000)) for _ in range(10**9)]",
        "carina.register('own').accept()",
        "carina.allocate('absent.answer')",
    ],
)
def test_ctrl_c_ends_a_wait(node: RunningNode, silent: subprocess.Popen[str], call: str) -> None:
    # A listener that never accepts, for an allocation that waits.
    with carina.register("absent.answer"):
        process = node.python(
            f"""
            import carina, signal
            # A shell starts what runs in the background with this signal ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            flow = carina.allocate("silent")
            print("waits")
            try:
                {call}
            except KeyboardInterrupt:
                print("interrupted")
            """
        )
        assert line_of(process) == "waits"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "interrupted"


def test_interrupted_send_is_finished(node: RunningNode) -> None:
    process = node.python(
        """
        import carina, signal
        def alarm(number, frame):
            raise InterruptedError
        signal.signal(signal.SIGALRM, alarm)
        with carina.allocate("later", ring_bytes=4096) as flow:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                flow.send(b"x" * 100_000)
            except InterruptedError:
                print("interrupted")
            flow.send(b"next")
        print("sent")
        """
    )
    with carina.register("later") as listener:
        flow = listener.accept(timeout=30)
        assert line_of(process) == "interrupted"
        assert flow.recv(timeout=30) == b"x" * 100_000
        assert flow.recv(timeout=30) == b"next"
    assert line_of(process) == "sent"


def test_other_threads_run_while_one_waits(node: RunningNode, silent: object) -> None:
    flow = carina.allocate("silent")
    counted = 0

    def count() -> None:
        nonlocal counted
        while thread.is_alive():
            counted += 1
            time.sleep(0.001)

    thread = threading.Thread(target=lambda: pytest.raises(TimeoutError, flow.recv, timeout=0.5))
    thread.start()
    count()
    assert counted > 10
