//! `carina wrap` of programs that send datagrams: Python, socat, and a static one in C.

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Output};

use super::node::{CARINA, Node, both_in_one};
use super::serving::{Serving, serve};
use super::within::output_of;
use super::wrap_static::compiled;

/// A server that sends each datagram back, exposed under the name `echo:7`.
fn echo(node: &Node) -> Serving {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((bytes, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..bytes], from);
        }
    });
    serve(node, &["expose", "udp", &address, "--as", "echo:7"])
}

fn run(node: &Node, options: &[&str], program: &[&str]) -> Output {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.arg("wrap").args(options).args(program);
    output_of(&mut command)
}

fn python(node: &Node, program: &str) -> Option<String> {
    if !Path::new("/usr/bin/python3").exists() {
        println!("SKIP: there is no /usr/bin/python3 here");
        return None;
    }
    let program = format!("import os, select, socket\n{program}");
    let output = run(node, &[], &["/usr/bin/python3", "-c", &program]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn datagrams_to_a_name_keep_their_bounds_and_their_sender() {
    let node = both_in_one();
    let _echo = echo(&node);
    let connected = "
address = socket.getaddrinfo('echo.dif.internal', 7, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(address)
assert s.getpeername() == address, s.getpeername()
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_UDP
poll = select.poll(); poll.register(s, select.POLLIN)
s.send(b'one'); s.send(b'x' * 1400); os.write(s.fileno(), b'three')
if os.fork() == 0:
    assert s.recv(2048) == b'one'; os._exit(0)
os.wait()
assert poll.poll()
data, peer = s.recvfrom(2048); assert (len(data), peer) == (1400, address), (data, peer)
data, _, _, peer = s.recvmsg(2048); assert (data, peer) == (b'three', address), (data, peer)
s.sendmsg([b'fo', b'ur'], [], 0, address); assert s.recv(2) == b'fo'
s.setblocking(False)
try: s.recv(1); print('more')
except BlockingIOError: print('no more')
";
    let Some(printed) = python(&node, connected) else {
        return;
    };
    assert_eq!(printed, "no more\n");
    let unconnected = "
address = socket.getaddrinfo('echo.dif.internal', 7, socket.AF_INET6, socket.SOCK_DGRAM)[0][4]
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for n in range(100):
    text = b'datagram %d' % n
    assert s.sendto(text, address) == len(text)
    data, peer = s.recvfrom(2048)
    assert (data, peer[:2]) == (text, address[:2]), (data, peer)
";
    python(&node, unconnected);
}

#[test]
fn datagrams_that_cannot_be_carried_are_refused() {
    let node = both_in_one();
    let _echo = echo(&node);
    let program = "
def address(host): return socket.getaddrinfo(host, 7, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
def attempt(act):
    try: act(); print('done')
    except OSError as error: print(type(error).__name__ , error.errno and os.strerror(error.errno))
new = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt(lambda: new().connect(address('missing.dif.internal')))
attempt(lambda: new().sendto(b'x', address('missing.dif.internal')))
s = new(); s.sendto(b'x', address('echo.dif.internal')); s.recv(1)
attempt(lambda: s.sendto(b'x', address('missing.dif.internal')))
attempt(lambda: s.sendto(b'x', ('127.0.0.1', 9)))
attempt(lambda: s.listen())
s.connect(address('echo.dif.internal')); s.send(b'y'); print(s.recv(1))
k, l = new(), new()
l.bind(('127.0.0.1', 0))
k.sendto(b'kernel', l.getsockname()); print(l.recvfrom(9)[0])
k.connect(l.getsockname()); attempt(lambda: k.sendto(b'x', address('echo.dif.internal')))
";
    let Some(printed) = python(&node, program) else {
        return;
    };
    let refused = "ConnectionRefusedError Connection refused\n";
    let connected = "OSError Transport endpoint is already connected\n";
    let unsupported = "OSError Operation not supported\n";
    let wanted = [
        refused,
        refused,
        // The socket has a second peer, and the kernel's third one.
        "done\n",
        "done\n",
        unsupported,
        "b'y'\n",
        "b'kernel'\n",
        connected,
    ];
    assert_eq!(printed, wanted.concat());
}

#[test]
fn socat_sends_a_datagram_to_a_name() {
    if !Path::new("/usr/bin/socat").exists() {
        return println!("SKIP: there is no /usr/bin/socat here");
    }
    let node = both_in_one();
    let _echo = echo(&node);
    // After the end of its input it still waits for datagrams, until it is killed.
    let script = "echo hello | socat -t 600 - UDP4:echo.dif.internal:7 >$0 & \
        until grep hello $0; do kill -0 $! || exit 1; sleep 0.02; done; kill $!";
    let answer = node.directory.path().join("answer");
    let answer = answer.to_str().unwrap();
    let output = run(&node, &[], &["/bin/sh", "-c", script, answer]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "hello\n",
        "{output:?}"
    );
}

#[test]
fn static_program_connects_a_socket_of_datagrams() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    let node = both_in_one();
    let rule = ["--rule", "10.9.1.1 -> dif as echo:{port}"];
    let ask = |port: &str| {
        run(&node, &rule, &[program.to_str().unwrap(), port])
            .status
            .code()
    };
    assert_eq!(ask("7"), Some(3), "nothing is registered");
    let _echo = echo(&node);
    assert_eq!(ask("7"), Some(0));
    assert_eq!(ask("8"), Some(3));
}

const C: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(atoi(words[1])) }, peer;
    socklen_t length = sizeof peer;
    char text[64];
    int s = socket(AF_INET, SOCK_DGRAM, 0), type;
    at.sin_addr.s_addr = inet_addr("10.9.1.1");
    if (connect(s, (struct sockaddr *)&at, sizeof at)) return errno == ECONNREFUSED ? 3 : 4;
    if (getpeername(s, (struct sockaddr *)&peer, &length)) return 5;
    if (peer.sin_port != at.sin_port || peer.sin_addr.s_addr != at.sin_addr.s_addr) return 6;
    length = sizeof type;
    if (getsockopt(s, SOL_SOCKET, SO_TYPE, &type, &length) || type != SOCK_DGRAM) return 7;
    for (int n = 0; n < 100; n++) {
        if (send(s, "first", 5, 0) != 5 || write(s, "second", 6) != 6) return 8;
        if (recv(s, text, sizeof text, 0) != 5 || memcmp(text, "first", 5)) return 9;
        if (read(s, text, sizeof text) != 6 || memcmp(text, "second", 6)) return 10;
    }
    return 0;
}
"#;
