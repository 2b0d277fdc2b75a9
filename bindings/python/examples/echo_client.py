"""A client of the echo server: allocates a flow and sends each argument as one message.

python3 echo_client.py NAME MESSAGE...
"""

import sys

import carina

name, *texts = sys.argv[1:] or ["echo.example"]
with carina.allocate(name, local="client.example") as flow:
    print(f"port {flow.port} in DIF {flow.dif}")
    for text in texts:
        flow.send(text.encode())
        print(flow.recv().decode())
