//! `carina wrap` of static UDP servers: a small one in C, and one in Go.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::node::{CARINA, Node, both_in_one};
use super::within::{ended, first_line};
use super::wrap::python;
use super::wrap_static::compiled;

/// A static server that waits for datagrams; `None` where no such program can be made.
fn serve(node: &Node, directory: &Path, name: &str, source: &str, how: &str) -> Option<Child> {
    let program = compiled(directory, name, source)?;
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["wrap", "--as", "echo"]).arg(program).arg(how);
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    assert_eq!(first_line(&mut server), "ready\n");
    Some(server)
}

/// Three clients with answers to each, then a datagram that ends the server.
const CLIENT: &str = "
import socket
def udp(): return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = (socket.gethostbyname('echo.dif.internal'), 7)
peers = [udp() for _ in range(3)]
for turn in range(20):
    for n, s in enumerate(peers): s.sendto(b'%d-%d' % (turn, n), to)
    for n, s in reversed(list(enumerate(peers))):
        text, peer = s.recvfrom(99)
        assert (text, peer) == (b'%d-%d' % (turn, n), to), (text, peer)
peers[0].sendto(b'x' * 9000, to); assert peers[0].recv(9999) == b'x' * 9000
peers[1].sendto(b'leave', to)
";

fn check(name: &str, source: &str, ways: &[&str]) {
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let directory = tempfile::tempdir().unwrap();
    let node = both_in_one();
    for how in ways {
        let Some(mut server) = serve(&node, directory.path(), name, source, how) else {
            return;
        };
        python(&node, &[], CLIENT);
        assert_eq!(ended(&mut server, how).code(), Some(0), "{how}");
    }
}

#[test]
fn static_udp_server_in_c_answers_many_peers() {
    check(
        "udp.c",
        C,
        &["from", "from-blocking", "msg", "msg-blocking", "mmsg"],
    );
}

#[test]
fn static_udp_server_in_go_answers_many_peers() {
    check("udp.go", GO, &["from", "msg"]);
}

const C: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

static char data[10000];

int main(int count, char **words) {
    const char *how = words[1];
    int blocks = strstr(how, "blocking") != 0;
    int s = socket(AF_INET, SOCK_DGRAM | (blocks ? 0 : SOCK_NONBLOCK), 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7)}, own, peer;
    if (bind(s, (void *)&at, sizeof at)) return 2;
    socklen_t length = sizeof own;
    if (getsockname(s, (void *)&own, &length) || own.sin_port != htons(7)) return 3;
    if (!blocks && (recvfrom(s, data, 1, 0, (void *)&peer, &length) >= 0 || errno != EAGAIN))
        return 4;
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd waits = {s, POLLIN, 0};
        if (!blocks && poll(&waits, 1, -1) != 1) return 5;
        struct iovec parts[2] = {{data, 3}, {data + 3, sizeof data - 3}};
        struct mmsghdr many = {{&peer, sizeof peer, parts, 2, 0, 0, 0}, 0};
        ssize_t got;
        length = sizeof peer;
        if (how[0] == 'f') {
            got = recvfrom(s, data, sizeof data, 0, (void *)&peer, &length);
        } else if (how[1] == 's') {
            got = recvmsg(s, &many.msg_hdr, 0);
            if (many.msg_hdr.msg_flags) return 6;
        } else {
            if (recvmmsg(s, &many, 1, 0, 0) != 1) return 7;
            got = many.msg_len;
        }
        if (got < 0 || peer.sin_family != AF_INET || !peer.sin_port) return 8;
        if (got == 5 && !memcmp(data, "leave", 5)) return 0;
        many.msg_hdr.msg_namelen = sizeof peer;
        parts[1].iov_len = got > 3 ? got - 3 : 0;
        if (how[0] == 'f') {
            if (sendto(s, data, got, 0, (void *)&peer, length) != got) return 9;
        } else if (how[1] == 's') {
            if (sendmsg(s, &many.msg_hdr, 0) != got) return 10;
        } else if (sendmmsg(s, &many, 1, 0) != 1 || many.msg_len != got) {
            return 11;
        }
    }
}
"#;

const GO: &str = r#"
package main

import (
	"fmt"
	"net"
	"os"
)

func main() {
	c, err := net.ListenUDP("udp", &net.UDPAddr{Port: 7})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	data := make([]byte, 10000)
	for {
		var n int
		var peer *net.UDPAddr
		if os.Args[1] == "msg" {
			n, _, _, peer, err = c.ReadMsgUDP(data, nil)
		} else {
			n, peer, err = c.ReadFromUDP(data)
		}
		if err != nil {
			panic(err)
		}
		if string(data[:n]) == "leave" {
			return
		}
		if os.Args[1] == "msg" {
			_, _, err = c.WriteMsgUDP(data[:n], nil, peer)
		} else {
			_, err = c.WriteToUDP(data[:n], peer)
		}
		if err != nil {
			panic(err)
		}
	}
}
"#;
