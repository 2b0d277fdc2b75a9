"""An echo server: registers a name and sends every message back to its sender.

python3 echo_server.py [NAME]
"""

import sys
import threading

import carina


def serve(flow: carina.Flow) -> None:
    """Send every message back until the flow ends."""
    with flow:
        for message in flow:
            flow.send(message)
    print(f"{flow.remote} closed its flow", flush=True)


name = sys.argv[1] if len(sys.argv) > 1 else "echo.example"
with carina.register(name) as listener:
    print(f"registered as {name}", flush=True)
    for flow in listener:
        threading.Thread(target=serve, args=(flow,), daemon=True).start()
