//! `carina wrap` of UDP servers, and of programs whose UDP sockets have many peers.

use std::time::Instant;

use super::node::{Node, PATIENCE, both_in_one};
use super::wrap::{Wrapped, has_python, python, serve as serve_wrapped};

/// A program with the modules and functions that all programs of these tests use.
fn with_functions(program: &str) -> String {
    format!("import os, select, socket, sys\n{PYTHON}{program}")
}

/// Starts a server under the name of an application, and waits for its first line.
fn serve(node: &Node, name: &str, program: &str) -> Wrapped {
    serve_wrapped(node, &["--as", name], &with_functions(program))
}

fn run(node: &Node, options: &[&str], program: &str) -> String {
    python(node, options, &with_functions(program))
}

/// Waits until the node has the name of an application, or no longer has it.
fn wait_for_name(node: &Node, name: &str, is_wanted: bool) {
    let start = Instant::now();
    loop {
        let apps = node.done(&["app", "list"]).to_string();
        if apps.contains(name) == is_wanted {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{name}: {apps}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

const PYTHON: &str = "
def at(host, port, family=socket.AF_INET):
    return socket.getaddrinfo(host + '.dif.internal', port, family, socket.SOCK_DGRAM)[0][4]
def udp(family=socket.AF_INET): return socket.socket(family, socket.SOCK_DGRAM)
";

/// Answers each datagram with its text and the host of its sender. The same port of TCP listens.
const ECHO: &str = "
stream = socket.socket(); stream.bind(('0.0.0.0', 7)); stream.listen()
s = udp(); s.bind(('0.0.0.0', 7))
assert s.getsockname() == ('0.0.0.0', 7), s.getsockname()
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
def streams():
    while True: stream.accept()[0].sendall(b'stream')
import threading; threading.Thread(target=streams, daemon=True).start()
print('listening', flush=True)
poll = select.epoll(); poll.register(s, select.EPOLLIN)
while True:
    poll.poll()
    text, peer = s.recvfrom(70000)
    if text == b'leave': break
    assert s.sendto(text + b' from ' + peer[0].encode(), peer) == len(text) + 6 + len(peer[0])
s.close()
while True: select.select([], [], [])
";

#[test]
fn udp_server_answers_many_peers_by_their_addresses() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, "echo", ECHO);
    wait_for_name(&node, "echo:7/udp", true);
    let client = "
import ipaddress
peers = [udp() for _ in range(20)]
for n, s in enumerate(peers): s.sendto(b'%d' % n, at('echo', 7))
for n, s in reversed(list(enumerate(peers))):
    text, peer = s.recvfrom(99); assert peer == at('echo', 7), peer
    number, _, host = text.partition(b' from '); assert int(number) == n, text
    assert ipaddress.ip_address(host.decode()) in ipaddress.ip_network('198.18.0.0/15'), host
c = udp(); c.connect(at('echo', 7)); c.send(b'connected'); assert c.recv(9) == b'connected'
# A datagram that was sent before its socket was closed arrives.
l = udp(); l.bind(('0.0.0.0', 8))
for n in range(10):
    q = udp(); q.bind(('0.0.0.0', 0)); q.sendto(b'last %d' % n, at('client', 8)); q.close()
    assert l.recv(9) == b'last %d' % n
six = udp(socket.AF_INET6); to = at('echo', 7, socket.AF_INET6)
six.sendto(b'x' * 60000, to); text, peer = six.recvfrom(70000)
assert text[:60000] == b'x' * 60000 and peer[:2] == to[:2], (len(text), peer)
t = socket.create_connection(('echo.dif.internal', 7)); assert t.recv(9) == b'stream'
other = udp(); other.bind(('0.0.0.0', 7))
";
    // The client may have the same port: it has another host.
    run(&node, &["--as", "client"], client);
    let taken = "
try: udp().bind(('0.0.0.0', 7)); print('bound')
except OSError as error: print(os.strerror(error.errno))
udp().sendto(b'leave', at('echo', 7))
";
    assert_eq!(
        run(&node, &["--as", "echo"], taken),
        "Address already in use\n"
    );
    // The name ends with the socket, though the program still runs.
    wait_for_name(&node, "echo:7/udp", false);
}

#[test]
fn udp_client_has_many_peers_of_dif_and_kernel_in_one_socket() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _servers = ["a", "b"].map(|name| serve(&node, name, ECHO));
    let client = "
plain = udp(); plain.bind(('127.0.0.1', 0)); k = plain.getsockname()
def ask(s, to, text=b'hello'):
    s.sendto(text, to); got, peer = s.recvfrom(99)
    assert peer[:2] == to[:2] and got.startswith(text), (got, peer, to)
for first in udp(), udp():
    poll = select.epoll(); poll.register(first, select.EPOLLIN)
    for _ in range(3):
        for host in 'a', 'b': ask(first, at(host, 7))
    first.sendto(b'kernel', k); got, peer = plain.recvfrom(99); assert got == b'kernel'
    plain.sendto(b'back', peer); assert poll.poll() and first.recvfrom(99) == (b'back', k)
    ask(first, at('a', 7)); first.sendto(b'nobody', at('missing', 7)); ask(first, at('b', 7))
# A socket that is bound to a port of the kernel keeps it.
s = udp(); s.bind(('127.0.0.1', 0)); own = s.getsockname()
ask(s, at('a', 7)); assert s.getsockname() == own
plain.sendto(b'to the port', own); assert s.recvfrom(99) == (b'to the port', k)
# Each way to send and to receive.
s.sendmsg([b'he', b'llo'], [], 0, at('b', 7))
text, _, flags, peer = s.recvmsg(3)
assert (text, peer) == (b'hel', at('b', 7)) and flags & socket.MSG_TRUNC
s.sendto(b'peek', at('b', 7)); assert s.recv(4, socket.MSG_PEEK) == b'peek'
room = bytearray(9); n, peer = s.recvfrom_into(room, 4); assert (n, bytes(room[:4])) == (4, b'peek')
s.setblocking(False)
for act in lambda: s.recv(1), lambda: s.send(b'x'), lambda: s.sendto(b'x' * 65508, at('a', 7)):
    try: act(); print('done')
    except OSError as error: print(os.strerror(error.errno))
if os.fork() == 0:
    s.setblocking(True); ask(s, at('a', 7), b'child'); os._exit(0)
assert os.wait()[1] == 0
try: os.wait(); print('a child')
except ChildProcessError: print('no child')
";
    let wanted = "Resource temporarily unavailable\nDestination address required\n\
        Message too long\nno child\n";
    assert_eq!(run(&node, &[], client), wanted);
}

/// As iperf3 does: a server connects its bound socket to a peer, and binds another one.
#[test]
fn bound_socket_connects_to_a_peer_and_its_port_is_free() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let server = "
def bound():
    s = udp(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('0.0.0.0', 7)); return s
first = bound(); print('listening', flush=True)
text, peer = first.recvfrom(99)
first.connect(peer); second = bound()
assert first.getpeername() == peer and first.getsockname()[1] == 7
assert first.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
first.send(b'connected ' + text)
text, other = second.recvfrom(99); assert other != peer
second.sendto(b'second ' + text, other)
for _ in range(20): first.send(b'again ' + first.recv(99))
third = udp(); third.bind(('0.0.0.0', 8))
# An address that is no peer: a flow to its name, which is not registered.
try: third.connect(peer)
except OSError: first.send(b'refused')
while True: select.select([], [], [])
";
    let client = "
to = TO
a, b = udp(), udp(); a.connect(to); a.send(b'a'); assert a.recv(99) == b'connected a'
b.sendto(b'b', to); assert b.recvfrom(99) == (b'second b', to)
for n in range(20): a.send(b'%d' % n); assert a.recv(99) == b'again %d' % n
assert a.recv(99) == b'refused'
";
    for kind in ["preload", "seccomp"] {
        let options = ["--as", "srv", "--kind", kind];
        let _server = serve_wrapped(&node, &options, &with_functions(server));
        run(&node, &[], &client.replace("TO", "at('srv', 7)"));
    }
}

/// What a relay drops is counted, and printed by a command.
#[test]
fn dropped_datagrams_are_counted_under_their_reasons() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, "echo", ECHO);
    let client = "
s = udp(); s.bind(('0.0.0.0', 9))
s.sendto(b'text', at('echo', 7)); assert s.recvfrom(99)[1] == at('echo', 7)
s.sendto(b'', at('echo', 7))
for _ in range(3): s.sendto(b'lost', at('missing', 7))
s.sendto(b'text', at('echo', 7)); s.recvfrom(99)
";
    run(&node, &["--as", "client"], client);
    let start = Instant::now();
    loop {
        let counts = node.done(&["wrap", "--drops"]);
        if (&counts["empty"], &counts["flow_refused"]) == (&1.into(), &3.into()) {
            assert_eq!(counts["too_many_peers"], 0, "{counts}");
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{counts}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
