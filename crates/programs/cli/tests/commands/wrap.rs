//! Unmodified programs whose TCP connections are flows.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::node::{CARINA, Node, PATIENCE, both_in_one};
use super::within::{Printed, first_line, output_of};

/// A wrapped program that ends with its test.
pub(super) struct Wrapped(Child);

impl Drop for Wrapped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn wrap(node: &Node, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.arg("wrap").args(options).args(program);
    command
}

pub(super) fn run(node: &Node, options: &[&str], program: &[&str]) -> Output {
    output_of(&mut wrap(node, options, program))
}

/// A program of Python, wrapped, whose first line says that it listens.
pub(super) fn serve(node: &Node, options: &[&str], program: &str) -> Wrapped {
    let mut command = wrap(node, options, &["/usr/bin/python3", "-c", program]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let line = first_line(&mut child);
    assert_eq!(line, "listening\n");
    Wrapped(child)
}

/// Runs a program of Python, wrapped, and gives what it prints.
pub(super) fn python(node: &Node, options: &[&str], program: &str) -> String {
    let output = run(node, options, &["/usr/bin/python3", "-c", program]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn has_python() -> bool {
    let has = Path::new("/usr/bin/python3").exists();
    if !has {
        println!("SKIP: there is no /usr/bin/python3 here");
    }
    has
}

/// Answers each connection, in a child of its own, with what came, its peer and its own address.
const ECHO: &str = "
import os, socket, sys
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(('0.0.0.0', 7000))
assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
server.listen(64)
assert server.getsockname() == ('0.0.0.0', 7000)
assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
print('listening', flush=True)
while True:
    connection, peer = server.accept()
    if os.fork() == 0:
        assert connection.getpeername() == peer
        received = b''
        while piece := connection.recv(65536): received += piece
        connection.sendall(received + repr((peer[0], connection.getsockname()[1])).encode())
        connection.shutdown(socket.SHUT_WR)
        os._exit(0)
    connection.close()
    try: os.waitpid(-1, os.WNOHANG)
    except ChildProcessError: pass
";

#[test]
fn unchanged_programs_reach_each_other_by_name() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, &["--as", "echo"], ECHO);
    let apps = node.done(&["app", "list"]).to_string();
    assert!(apps.contains("echo:7000"), "{apps}");
    let client = "
import socket
server = socket.create_connection(('echo.dif.internal', 7000))
assert server.family == socket.AF_INET and server.getpeername()[1] == 7000
server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
assert server.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
server.sendall(b'a' * 1000000); server.shutdown(socket.SHUT_WR)
answer = b''
while piece := server.recv(65536): answer += piece
print(len(answer.lstrip(b'a')), server.getsockname()[0] in answer.decode()[1000000:])
";
    assert_eq!(
        python(&node, &[], client).split_whitespace().nth(1),
        Some("True")
    );
    // The kernel has no such port.
    let plain = std::net::TcpStream::connect("127.0.0.1:7000");
    assert_eq!(
        plain.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[test]
fn sockets_that_do_not_block_become_writable_when_connected() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, &["--as", "echo"], ECHO);
    let client = "
import asyncio
async def one(n):
    reader, writer = await asyncio.open_connection('echo.dif.internal', 7000)
    writer.write(b'%d ' % n); writer.write_eof()
    answer = await reader.read(); writer.close()
    return int(answer.split()[0])
async def refused():
    try: await asyncio.open_connection('echo.dif.internal', 7001)
    except ConnectionRefusedError: return True
async def main():
    numbers = await asyncio.gather(*(one(n) for n in range(100)))
    print(numbers == list(range(100)), await refused())
asyncio.run(main())
";
    assert_eq!(python(&node, &[], client), "True True\n");
}

#[test]
fn socket_in_an_epoll_before_it_connects_stays_there() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, &["--as", "echo"], ECHO);
    let client = "
import select, socket
s = socket.socket(); s.setblocking(False)
epoll = select.epoll(); epoll.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
address = socket.getaddrinfo('echo.dif.internal', 7000)[0][4]
s.connect_ex(address)
for _ in range(100):
    if any(events & select.EPOLLOUT for _, events in epoll.poll(10)): break
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.send(b'x'); s.shutdown(socket.SHUT_WR)
while not any(events & select.EPOLLIN for _, events in epoll.poll(10)): pass
print(s.recv(1) == b'x')
";
    assert_eq!(python(&node, &[], client), "True\n");
}

/// A thread puts sockets into an epoll, again and again, while another one forks children that do
/// the same.
#[test]
fn child_of_a_program_with_threads_uses_epoll_and_connects() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let _server = serve(&node, &["--as", "echo"], ECHO);
    let client = "
import os, select, signal, socket, threading
address = socket.getaddrinfo('echo.dif.internal', 7000)[0][4]
sockets = [socket.socket() for _ in range(8)]
epoll = select.epoll()
for s in sockets: epoll.register(s, select.EPOLLIN)
is_over = threading.Event()
def watch():
    while not is_over.is_set():
        for s in sockets: epoll.modify(s, select.EPOLLIN)
threads = [threading.Thread(target=watch) for _ in range(3)]
for thread in threads: thread.start()
for n in range(200):
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        for s in sockets: epoll.modify(s, select.EPOLLIN)
        if n % 50 == 0:
            s = socket.create_connection(address)
            s.sendall(b'x'); s.shutdown(socket.SHUT_WR); assert s.recv(1) == b'x'
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status: print('child', n, 'has ended with', status)
is_over.set()
for thread in threads: thread.join()
print('all have ended')
";
    assert_eq!(python(&node, &[], client), "all have ended\n");
}

/// The application that the client asks for is stopped, so that it answers when the client says so.
#[test]
fn socket_that_waits_for_its_flow_is_not_connected() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let run = node.directory.path().join("run");
    let mut register = Command::new(CARINA);
    register.arg("--run").arg(run);
    register
        .args(["register", "slow:7000"])
        .stdout(Stdio::null());
    let application = Wrapped(register.spawn().unwrap());
    let end = Instant::now() + PATIENCE;
    while !node
        .done(&["app", "list"])
        .to_string()
        .contains("slow:7000")
    {
        assert!(Instant::now() < end, "the name is not registered");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&application.0), Signal::STOP).unwrap();
    let client = "
import errno, os, select, signal, socket, sys
s = socket.socket(); s.setblocking(False)
address = socket.getaddrinfo('slow.dif.internal', 7000, socket.AF_INET)[0][4]
print(errno.errorcode[s.connect_ex(address)])
try: s.getpeername()
except OSError as error: print(errno.errorcode[error.errno])
print(errno.errorcode[s.connect_ex(address)])
os.kill(APPLICATION, signal.SIGCONT)
select.select([], [s], [])
print(errno.errorcode[s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)])
try: s.getpeername()
except OSError as error: print(errno.errorcode[error.errno])
";
    let client = client.replace("APPLICATION", &application.0.id().to_string());
    for kind in ["preload", "seccomp"] {
        let answers = python(&node, &["--kind", kind], &client);
        let expected = "EINPROGRESS ENOTCONN EALREADY ECONNREFUSED ENOTCONN";
        assert_eq!(
            answers.split_whitespace().collect::<Vec<_>>().join(" "),
            expected,
            "{kind}"
        );
        kill_process(Pid::from_child(&application.0), Signal::STOP).unwrap();
    }
}

#[test]
fn rules_decide_what_becomes_a_flow() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let listens = "listen 127.0.0.0/8 -> dif as inner:{port}";
    let _server = serve(
        &node,
        &["--rule", listens],
        &ECHO.replace("0.0.0.0", "127.0.0.1"),
    );
    let connect = "
import socket
s = socket.socket(); print(s.connect_ex(('127.0.0.1', 7000)), s.family.name)
";
    let of = |rule: &str| python(&node, &["--rule", rule], connect);
    assert_eq!(
        of("127.0.0.0/8:7000 -> dif net as inner:{port}"),
        "0 AF_INET\n"
    );
    assert_eq!(of("127.0.0.0/8 -> refuse"), "111 AF_INET\n");
    // Another port's rule: the kernel, which has no such port.
    assert_eq!(
        of("127.0.0.0/8:7001 -> dif as inner:{port}"),
        "111 AF_INET\n"
    );
    assert_eq!(
        of("127.0.0.0/8 -> dif no-such-dif as inner:{port}"),
        "113 AF_INET\n"
    );
}

#[test]
fn programs_that_cannot_be_wrapped_are_refused_with_the_reason() {
    let node = both_in_one();
    let directory = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &[u8], mode| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let set_id = script("set-id", b"#!/bin/sh\n", 0o4755);
    let text = script("text", b"hello", 0o755);
    for (options, program, code, says) in [
        (
            &[][..],
            "no-such-program",
            3,
            "there is no such program in PATH",
        ),
        (&[], "/etc/passwd", 3, "not an executable file"),
        (&[], &set_id, 3, "set-user-ID"),
        (&[], &text, 3, "neither an ELF program nor a script"),
        (&["--rule", "*.vm"], "/bin/true", 2, "has no \"->\""),
        (
            &["--rule", "* -> tunnel"],
            "/bin/true",
            2,
            "must be kernel, refuse or dif",
        ),
        (
            &["--rule", "* -> dif", "--rule", "*.vm -> kernel"],
            "/bin/true",
            2,
            "never used",
        ),
        (&["--dif", "net"], "/bin/true", 2, "--as"),
    ] {
        let output = run(&node, options, &[program]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{options:?} {program}: {printed}"
        );
        assert!(printed.contains(says), "{options:?} {program}: {printed}");
    }
    let mut without_node = Command::new(CARINA);
    without_node.args(["--run", "/no/such/run", "wrap", "/bin/true"]);
    let output = output_of(&mut without_node);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && printed.contains("/no/such/run"),
        "{printed}"
    );
}

#[test]
fn end_of_either_program_or_of_the_node_ends_the_other_in_time() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let mut server = serve(&node, &["--as", "echo"], ECHO);
    let waits = "
import socket
s = socket.create_connection(('echo.dif.internal', 7000)); print('connected', flush=True)
try: print('end', s.recv(1))
except ConnectionResetError: print('reset')
";
    let mut client = wrap(&node, &[], &["/usr/bin/python3", "-c", waits]);
    let mut client = Wrapped(client.stdout(Stdio::piped()).spawn().unwrap());
    let output = Printed::of(&mut client.0);
    assert_eq!(output.line(), "connected\n");
    // The child that serves the connection lives on: only its own end ends the flow.
    let children = format!("/proc/{0}/task/{0}/children", server.0.id());
    let children = std::fs::read_to_string(children).unwrap();
    let _ = server.0.kill();
    for child in children.split_whitespace() {
        let killed = Command::new("kill").args(["-9", child]).status().unwrap();
        assert!(killed.success());
    }
    let rest = output.rest();
    assert!(rest == "end b''\n" || rest == "reset\n", "{rest}");
    let gone = "
import socket
try: socket.create_connection(('echo.dif.internal', 7000)); print('connected')
except OSError as error: print(type(error).__name__)
";
    assert_eq!(python(&node, &[], gone), "ConnectionRefusedError\n");
}

/// The daemon of rsync forks for each connection, and its client sends what the daemon lacks.
#[test]
fn rsync_copies_a_directory_to_its_daemon_by_name() {
    if !Path::new("/usr/bin/rsync").exists() {
        return println!("SKIP: there is no /usr/bin/rsync here");
    }
    let node = both_in_one();
    let path = |name: &str| node.directory.path().join(name);
    let [from, to, settings] = ["from", "to", "rsyncd.conf"].map(path);
    std::fs::create_dir_all(from.join("below")).unwrap();
    std::fs::create_dir(&to).unwrap();
    let content: Vec<u8> = (0..3_000_000_u64).map(|n| ((n * n) >> 7) as u8).collect();
    std::fs::write(from.join("below/file"), &content).unwrap();
    std::os::unix::fs::symlink("below/file", from.join("link")).unwrap();
    let user = rustix::process::geteuid().as_raw();
    let text = format!(
        "port = 8730\nuse chroot = false\nreverse lookup = false\nuid = {user}\nmunge symlinks = false\n\
         [site]\npath = {}\nread only = false\n",
        to.display()
    );
    std::fs::write(&settings, text).unwrap();
    let settings = format!("--config={}", settings.display());
    let words = ["/usr/bin/rsync", "--daemon", "--no-detach", &settings];
    let daemon = wrap(&node, &["--as", "files"], &words).spawn().unwrap();
    let _daemon = Wrapped(daemon);
    let end = Instant::now() + PATIENCE;
    while !node
        .done(&["app", "list"])
        .to_string()
        .contains("files:8730")
    {
        assert!(Instant::now() < end, "the daemon does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let source = format!("{}/", from.display());
    let site = "rsync://files.dif.internal:8730/site/";
    let sync = |words: &[&str]| {
        let output = run(
            &node,
            &[],
            &[&["/usr/bin/rsync", "-a", "--stats"], words].concat(),
        );
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    sync(&[&source, site]);
    assert!(std::fs::read(to.join("link")).unwrap() == content);
    // The second time, nothing is sent but the list.
    let printed = sync(&["--checksum", &source, site]);
    assert!(
        printed.contains("Number of regular files transferred: 0"),
        "{printed}"
    );
    let back = path("back");
    sync(&[site, back.to_str().unwrap()]);
    assert!(std::fs::read(back.join("below/file")).unwrap() == content);
}

#[test]
fn sockets_keep_to_the_small_print_of_tcp() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let program = "
import errno, select, socket
def pair():
    server = socket.socket(); server.bind(('0.0.0.0', 0)); server.listen()
    to = ('srv.dif.internal', server.getsockname()[1])
    return socket.create_connection(to), server.accept()[0]
# A server is reachable as soon as listen has returned.
for _ in range(300): pair()
# One socket for each family, on one port.
four, six = socket.socket(), socket.socket(socket.AF_INET6)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
four.bind(('0.0.0.0', 7000)); six.bind(('::', 7000)); six.listen(); four.listen()
assert six.getsockname()[:2] == ('::', 7000), six.getsockname()
# The same in the other order, which asyncio may choose; a third socket has no place.
late, first = socket.socket(), socket.socket(socket.AF_INET6)
first.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
first.bind(('::', 7001)); late.bind(('0.0.0.0', 7001)); late.listen(); first.listen()
for port in 7000, 7001:
    try: socket.socket().bind(('0.0.0.0', port)); assert False, port
    except OSError as error: assert error.errno == errno.EADDRINUSE, error
for family in socket.AF_INET, socket.AF_INET6:
    s = socket.socket(family); s.connect(socket.getaddrinfo('srv.dif.internal', 7000, family)[0][4])
    assert four.accept()[0].getsockname()[1] == 7000
both = socket.socket(socket.AF_INET6)
try: both.bind(('::', 7000)); print('bound')
except OSError as error: print(error.errno)
# The first bytes after the other end has closed are discarded, the next ones refused.
for send in lambda s: s.send(b'x'), lambda s: s.sendmsg([b'x']), lambda s: s.sendto(b'x', ('', 0)):
    ours, theirs = pair(); theirs.close(); select.select([ours], [], [])
    assert send(ours) == 1
    try: ours.send(b'x'); print('sent')
    except BrokenPipeError: print('refused')
ours, theirs = pair(); ours.shutdown(socket.SHUT_WR)
try: ours.send(b'x'); print('sent')
except BrokenPipeError: print('refused')
";
    let printed = python(&node, &["--as", "srv"], program);
    assert_eq!(printed, "98\n".to_owned() + &"refused\n".repeat(4));
}
