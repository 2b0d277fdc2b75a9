"""Make a virtual network of six nodes in a ring, measure flows over 1, 2 and 3 hops, plot them.

python3 six.py [--vms] [PICTURE]     (as root; PICTURE: six.svg by default)
"""

import sys

import carina
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

NODES = [f"r{number}" for number in range(1, 7)]
KIND: dict[str, object] = (
    {"kind": "vm", "memory": 256} if "--vms" in sys.argv else {"kind": "namespace"}
)
DOCUMENT = {
    "vnet": {"name": "sixpy"},
    "defaults": KIND,
    "node": {name: {} for name in NODES},
    "link": [
        {"ends": [NODES[at - 1], NODES[at]], "rate": "100Mbps", "as": "dif"} for at in range(6)
    ],
}


def measure(net: carina.vnet.Network) -> dict[int, list[float]]:
    """Return round-trip times over flows in microseconds, by number of hops."""
    times: dict[int, list[float]] = {}
    for number, name in enumerate(NODES[1:], 1):
        ping = ("carina", "--json", "ping", name, "-c", "50", "-i", "5ms")
        rtt = net.exec_json("r1", *ping)["rtt_us"]
        hops = min(number, 6 - number)
        times.setdefault(hops, []).extend((rtt["min"], rtt["p50"], rtt["p90"]))
    return times


with carina.vnet.up(DOCUMENT) as network:
    print(f"{network.name}: ready after {network.status()['ready_after_ms']:.0f} ms")
    rtts = dict(sorted(measure(network).items()))
plt.boxplot(list(rtts.values()), tick_labels=[str(hops) for hops in rtts])
plt.xlabel("hops")
plt.ylabel("round-trip time of a flow, µs")
picture = next((word for word in sys.argv[1:] if not word.startswith("-")), "six.svg")
plt.savefig(picture)
print(f"{picture}: {', '.join(f'{hops} hops {min(rtt):.0f} µs' for hops, rtt in rtts.items())}")
