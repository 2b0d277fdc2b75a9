//! Many connections of wrapped programs at once.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::node::{CARINA, Node, both_in_one};
use super::within::{ended, first_line};

fn wrapped(node: &Node, options: &[&str], program: &str) -> Child {
    let program = format!(
        "import resource, select, socket, sys\n\
         limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))\n{program}"
    );
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.arg("wrap").args(options);
    command.args(["/usr/bin/python3", "-c", &program]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The node's descriptors, and its memory in KiB.
fn use_of(node: &Node) -> (usize, u64) {
    let process = Path::new("/proc").join(node.pid().to_string());
    let descriptors = std::fs::read_dir(process.join("fd")).unwrap().count();
    let status = std::fs::read_to_string(process.join("status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.unwrap().trim().trim_end_matches(" kB");
    (descriptors, memory.parse().unwrap())
}

const SERVER: &str = "
server = socket.socket(); server.bind(('0.0.0.0', 7000)); server.listen(4096)
server.setblocking(False)
poll = select.epoll(); poll.register(server, select.EPOLLIN); opened = {}
print('listening', flush=True)
while True:
    for number, _ in poll.poll():
        if number == server.fileno():
            try:
                while True:
                    connection = server.accept()[0]; connection.setblocking(False)
                    opened[connection.fileno()] = connection
                    poll.register(connection, select.EPOLLIN)
            except BlockingIOError: continue
        text = opened[number].recv(99)
        if text: opened[number].send(text)
        else: opened.pop(number).close()
";

const CLIENT: &str = "
to = (socket.gethostbyname('srv.dif.internal'), 7000)
def connect(count):
    poll, waiting, connected = select.poll(), {}, []
    while len(connected) < count:
        # A server that does not accept in time refuses: such connections are tried again.
        for _ in range(count - len(connected) - len(waiting)):
            s = socket.socket(); s.setblocking(False)
            if s.connect_ex(to) not in (0, 115): continue
            waiting[s.fileno()] = s; poll.register(s, select.POLLOUT)
        for number, _ in poll.poll(100):
            s = waiting.pop(number); poll.unregister(number)
            if s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR): continue
            s.setblocking(True); connected.append(s)
    return connected
for _ in range(3):
    connected = connect(COUNT)
    for n, s in enumerate(connected): s.send(b'%d' % n)
    for n, s in enumerate(connected): assert int(s.recv(9)) == n
    for s in connected: s.close()
idle = connect(IDLE)
print('idle', flush=True); sys.stdin.read()
";

const SLOW_SERVER: &str = "
import time
server = socket.socket(); server.bind(('0.0.0.0', 7000)); server.listen(COUNT)
print('listening', flush=True)
assert sys.stdin.readline() == 'accept\\n'
for n in range(COUNT):
    connection = server.accept()[0]; connection.sendall(b'%d' % n); connection.close()
";

const EAGER_CLIENT: &str = "
to = (socket.gethostbyname('srv.dif.internal'), 7000)
opened = []
for _ in range(COUNT):
    s = socket.socket(); s.setblocking(False)
    assert s.connect_ex(to) in (0, 115); opened.append(s)
poll, waiting = select.poll(), {s.fileno(): s for s in opened}
for s in opened: poll.register(s, select.POLLOUT)
while waiting:
    for number, _ in poll.poll():
        poll.unregister(number); s = waiting.pop(number)
        error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR); assert error == 0, error
print('connected', flush=True)
read = set()
for s in opened: s.setblocking(True); read.add(int(s.recv(9)))
assert read == set(range(COUNT)), len(read)
";

/// All connections are open before the server accepts the first.
#[test]
fn thousand_connections_wait_at_a_slow_server() {
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let count = limit.maximum.unwrap_or(u64::MAX).saturating_sub(200);
    if count < 1000 || !rustix::process::geteuid().is_root() {
        return println!("SKIP: 1,000 waiting flows need 1,200 descriptors and CAP_NET_ADMIN");
    }
    let node = both_in_one();
    let of_count = |program: &str| format!("COUNT = 1000\n{program}");
    let mut server = wrapped(&node, &["--as", "srv"], &of_count(SLOW_SERVER));
    assert_eq!(first_line(&mut server), "listening\n");
    let mut client = wrapped(&node, &[], &of_count(EAGER_CLIENT));
    assert_eq!(first_line(&mut client), "connected\n");
    server.stdin.take().unwrap().write_all(b"accept\n").unwrap();
    assert!(ended(&mut client, "the client").success());
    assert!(ended(&mut server, "the server").success());
}

/// 1,000 connections open, exchange data and close together, three times; then 10,000 are idle. A
/// low limit of descriptors makes it fewer.
#[test]
fn thousands_of_connections_cost_the_node_no_descriptors() {
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(200);
    let (count, idle) = (most.min(1000), most.min(10_000));
    let node = both_in_one();
    let mut server = wrapped(&node, &["--as", "srv"], SERVER);
    assert_eq!(first_line(&mut server), "listening\n");
    let before = use_of(&node);
    let constants = format!("COUNT, IDLE = {count}, {idle}\n{CLIENT}");
    let mut client = wrapped(&node, &[], &constants);
    assert_eq!(first_line(&mut client), "idle\n");
    let during = use_of(&node);
    drop(client.stdin.take());
    assert!(ended(&mut client, "the client").success());
    server.kill().unwrap();
    server.wait().unwrap();
    println!(
        "{idle} idle connections: the node has {} descriptors ({} without) and {} KiB ({} without)",
        during.0, before.0, during.1, before.1
    );
    // The two programs hold the ends of a flow within the host.
    assert!(during.0 < before.0 + 100, "{before:?}, {during:?}");
}
