//! `carina wrap` of static programs: a small one in C, and one in Go.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::node::{CARINA, Node, both_in_one};
use crate::commands::serving::{serve, web_server};
use crate::commands::within::{Printed, ended, first_line, output_from};

/// Compiles a static program; `None`, with a note, where that is not possible.
pub(super) fn compiled(directory: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (file, program) = (directory.join(name), directory.join("program"));
    std::fs::write(&file, source).unwrap();
    let mut command = if name.ends_with(".go") {
        let mut go = Command::new("go");
        go.arg("build").arg("-o").arg(&program).arg(&file);
        go.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
        go.env("GOCACHE", directory.join("cache"))
            .env("GOFLAGS", "");
        go
    } else {
        let mut cc = Command::new("cc");
        cc.args(["-static", "-pthread", "-o"]).arg(&program);
        cc.arg(&file);
        cc
    };
    let compiler = match command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn() {
        Ok(compiler) => compiler,
        Err(error) => {
            println!("SKIP: no compiler of {name} here: {error}");
            return None;
        }
    };
    let output = output_from(compiler, "a compiler");
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr);
        println!("SKIP: no static programs of {name} here: {printed}");
        return None;
    }
    Some(program)
}

/// Starts a program under `carina wrap`.
fn wrapped(node: &Node, options: &[&str], program: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["--wait", "600s", "wrap"]).args(options);
    command.arg(program).args(words);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// A server that listens.
fn server(node: &Node, program: &Path, words: &[&str]) -> (Child, Printed) {
    let mut server = wrapped(node, &["--as", "srv"], program, words);
    let output = Printed::of(&mut server);
    assert_eq!(output.line(), "ready\n");
    (server, output)
}

const TO_SERVER: [&str; 2] = ["--rule", "10.9.1.1:9000 -> dif as srv:9000"];

fn code(mut child: Child) -> i32 {
    ended(&mut child, "a wrapped program").code().unwrap()
}

#[test]
fn static_programs_talk_over_flows_and_exit_as_they_do() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    let node = both_in_one();
    let (serving, _output) = server(&node, &program, &["server", "200"]);
    let client = wrapped(&node, &TO_SERVER, &program, &["client", "200"]);
    // The program ends with 7 when all went well.
    assert_eq!(code(client), 7);
    assert_eq!(code(serving), 0);
    let refused = wrapped(&node, &TO_SERVER, &program, &["client", "1"]);
    assert_eq!(code(refused), 3, "nothing is registered: connect fails");
}

/// Starts a dynamic program under `carina wrap`, in a directory with the static one.
fn start(node: &Node, directory: &Path, options: &[&str], script: &[&str]) -> Child {
    let mut command = Command::new(CARINA);
    command.arg("--run").arg(node.directory.path().join("run"));
    command.args(["--wait", "600s", "wrap"]).args(options);
    command.args(script);
    let path = format!("{}:/usr/bin:/bin", directory.display());
    command.env("PATH", path).current_dir(directory);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Each way in which a dynamic program starts another: as a shell, by PATH, by vfork and by
/// posix_spawn. The words that the program gets are its own.
#[test]
fn static_program_that_a_dynamic_one_starts_is_wrapped() {
    let directory = tempfile::tempdir().unwrap();
    if compiled(directory.path(), "program.c", C).is_none() {
        return;
    }
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let node = both_in_one();
    let started =
        |options: &[&str], script: &[&str]| start(&node, directory.path(), options, script);
    let python = |text: &str| {
        let text = format!("import os, subprocess, sys\n{text}");
        code(started(&TO_SERVER, &["/usr/bin/python3", "-c", &text]))
    };
    let mut serving = started(
        &["--as", "srv"],
        &["sh", "-c", "./program server 6; exit 5"],
    );
    assert_eq!(first_line(&mut serving), "ready\n");
    let words = "'program', 'client', '1'";
    assert_eq!(
        code(started(&TO_SERVER, &["sh", "-c", "./program client 1"])),
        7
    );
    assert_eq!(
        code(started(
            &TO_SERVER,
            &["sh", "-c", "exec env program client 1"]
        )),
        7
    );
    assert_eq!(python(&format!("os.execv('./program', [{words}])")), 7);
    assert_eq!(python(&format!("os.execvp('program', [{words}])")), 7);
    assert_eq!(
        python(&format!("sys.exit(subprocess.run([{words}]).returncode)")),
        7
    );
    let spawn = format!(
        "pid = os.posix_spawnp('program', [{words}], os.environ)\n\
         sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    );
    assert_eq!(python(&spawn), 7);
    assert_eq!(code(serving), 5);
    // Without the rules in its environment the program has the kernel's sockets, in which it finds
    // no such network.
    let bare = "os.execve('./program', ['program', 'words', '-x', ''], {})";
    assert_eq!(python(bare), 4);
    assert_eq!(
        python("os.execv('./program', ['its name', 'words', '--', '-x'])"),
        104
    );
}

/// The functions of C with a variable number of arguments, and those that take a descriptor.
#[test]
fn lists_and_descriptors_start_static_programs_wrapped() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let node = both_in_one();
    let (serving, _output) = server(&node, &program, &["server", "7"]);
    let c = |call: &str| {
        let text = format!(
            "import ctypes, os, sys\nc = ctypes.CDLL(None)\nn = ctypes.c_void_p(None)\n\
             w = b'program', b'client', b'1'\n\
             words = (ctypes.c_char_p * 4)(*w, None)\n\
             env = [('%s=%s' % at).encode() for at in os.environ.items()]\n\
             env = (ctypes.c_char_p * (len(env) + 1))(*env, None)\n\
             f = os.open('program', os.O_RDONLY)\nd = os.open('.', os.O_RDONLY)\n\
             m = os.memfd_create('copy', 1); os.write(m, open('program', 'rb').read())\n\
             m = os.open('/proc/self/fd/%d' % m, os.O_RDONLY)\n\
             c.{call}\nsys.exit(99)"
        );
        let script = ["/usr/bin/python3", "-c", &text];
        code(start(&node, directory.path(), &TO_SERVER, &script))
    };
    for call in [
        "execl(b'./program', *w, n)",
        "execlp(b'program', *w, n)",
        "execle(b'./program', *w, n, env)",
        "fexecve(f, words, env)",
        "fexecve(m, words, env)",
        "execveat(d, b'program', words, env, 0)",
        "execveat(-100, b'./program', words, env, 0)",
    ] {
        assert_eq!(c(call), 7, "{call}");
    }
    assert_eq!(c("execl(b'./none', *w, n)"), 99);
    // Eight words: five are in registers, the others on the stack.
    assert_eq!(
        c("execl(b'./program', b'its name', b'words', b'--', b'-x', b'5', b'6', b'7', n)"),
        107
    );
    assert_eq!(code(serving), 0);
}

#[test]
fn go_programs_talk_over_flows() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.go", GO) else {
        return;
    };
    let node = both_in_one();
    let (serving, _output) = server(&node, &program, &["server", "200"]);
    let client = wrapped(&node, &TO_SERVER, &program, &["client", "200"]);
    assert_eq!(code(client), 7);
    assert_eq!(code(serving), 0);
}

#[test]
fn go_program_resolves_a_name_of_a_dif() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.go", GO_HTTP) else {
        return;
    };
    let node = both_in_one();
    let web = web_server();
    let _exposed = serve(&node, &["expose", "tcp", &web, "--as", "web.vm:8080"]);
    let ask = |url: &str| {
        let rule = ["--rule", "*.vm -> dif"];
        let output = output_from(wrapped(&node, &rule, &program, &[url]), url);
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = ask("http://web.vm:8080/page");
    assert!(printed.contains("GET /page HTTP/1.1"), "{printed}");
    let printed = ask("http://nobody.vm:8080/");
    assert!(printed.contains("connection refused"), "{printed}");
    // Another name is a question for the program's own server, which this name defeats at once or
    // late; it never becomes a flow.
    let printed = ask("http://no-such-host.invalid:8080/");
    assert!(printed.contains("lookup no-such-host.invalid"), "{printed}");
}

/// Prints a page, or an error.
const GO_HTTP: &str = r#"package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	http.DefaultTransport.(*http.Transport).Proxy = nil
	answer, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		return
	}
	io.Copy(os.Stdout, answer.Body)
}
"#;

#[test]
fn signals_go_on_to_a_static_program() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    let node = both_in_one();
    let (serving, _output) = server(&node, &program, &["server", "1"]);
    kill_process(Pid::from_child(&serving), Signal::TERM).unwrap();
    assert_eq!(code(serving), 128 + Signal::TERM.as_raw());
}

#[test]
fn killed_supervisor_leaves_errors_not_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    let node = both_in_one();
    // The kernel kills the shell with the supervisor, but not the program that the shell started.
    let script = format!("{} server 1; exit 5", program.display());
    let options = ["--kind", "seccomp", "--as", "srv"];
    let script = ["sh", "-c", script.as_str()];
    let mut serving = start(&node, directory.path(), &options, &script);
    let output = Printed::of(&mut serving);
    assert_eq!(output.line(), "ready\n");
    serving.kill().unwrap();
    serving.wait().unwrap();
    // The program holds the other end: this returns when it has ended.
    assert_eq!(output.rest(), "accept: Function not implemented\n");
}

/// A thread of the program changes the port while the kernel has its call: between look and use.
#[test]
fn address_that_changes_reaches_no_refused_port() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path(), "program.c", C) else {
        return;
    };
    let node = both_in_one();
    let counted = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, count) = (
            listener.local_addr().unwrap().port(),
            Arc::new(AtomicUsize::new(0)),
        );
        let counts = Arc::clone(&count);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                counts.fetch_add(1, Ordering::SeqCst);
            }
        });
        (port, count)
    };
    let ((open, of_open), (closed, of_closed)) = (counted(), counted());
    let rule = format!("127.0.0.1:{closed} -> refuse");
    let ports = [open.to_string(), closed.to_string()];
    let words = ["flip", &ports[0], &ports[1]];
    let child = wrapped(&node, &["--rule", &rule], &program, &words);
    assert_eq!(code(child), 7);
    assert!(of_open.load(Ordering::SeqCst) > 0);
    assert_eq!(of_closed.load(Ordering::SeqCst), 0);
}

const C: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile struct sockaddr_in flipped;
static unsigned short ports[2];

static void *flip(void *unused) {
    for (;;) { flipped.sin_port = ports[0]; flipped.sin_port = ports[1]; }
    return unused;
}

static int ends(const char *what) { printf("%s: %s\n", what, strerror(errno)); return 3; }

int main(int count, char **words) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(9000) };
    char text[64];
    setbuf(stdout, 0);
    /* Ends with the number of its words, and 100 more if it has another name. */
    if (!strcmp(words[1], "words")) return count + 100 * !!strcmp(words[0], "program");
    if (!strcmp(words[1], "flip")) {
        pthread_t thread;
        flipped.sin_family = AF_INET;
        flipped.sin_addr.s_addr = inet_addr("127.0.0.1");
        ports[0] = htons(atoi(words[2]));
        ports[1] = htons(atoi(words[3]));
        pthread_create(&thread, 0, flip, 0);
        for (int n = 0; n < 500; n++) {
            int s = socket(AF_INET, SOCK_STREAM, 0);
            connect(s, (struct sockaddr *)&flipped, sizeof flipped);
            close(s);
        }
        return 7;
    }
    int times = atoi(words[2]);
    if (!strcmp(words[1], "server")) {
        int l = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(l, (struct sockaddr *)&at, sizeof at) || listen(l, 9)) return ends("listen");
        puts("ready");
        for (int n = 0; n < times; n++) {
            struct sockaddr_in peer;
            socklen_t length = sizeof peer;
            int s = accept(l, (struct sockaddr *)&peer, &length);
            if (s < 0) return ends("accept");
            if (peer.sin_family != AF_INET || length != sizeof peer) return 4;
            int got, all = 0;
            while ((got = read(s, text + all, sizeof text - all)) > 0) all += got;
            if (write(s, text, all) != all) return ends("write");
            close(s);
        }
        return 0;
    }
    at.sin_addr.s_addr = inet_addr("10.9.1.1");
    for (int n = 0; n < times; n++) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)&at, sizeof at)) return ends("connect");
        if (write(s, "hello", 5) != 5 || shutdown(s, SHUT_WR)) return ends("write");
        int got, all = 0;
        while ((got = read(s, text + all, sizeof text - all)) > 0) all += got;
        if (all != 5 || memcmp(text, "hello", 5)) return 5;
        close(s);
    }
    return 7;
}
"#;

const GO: &str = r#"
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func main() {
	times, _ := strconv.Atoi(os.Args[2])
	if os.Args[1] == "server" {
		listener, err := net.Listen("tcp", ":9000")
		check(err)
		fmt.Println("ready")
		done := make(chan bool)
		for n := 0; n < times; n++ {
			conn, err := listener.Accept()
			check(err)
			go func() {
				text, err := io.ReadAll(conn)
				check(err)
				_, err = conn.Write(text)
				check(err)
				conn.Close()
				done <- true
			}()
		}
		for n := 0; n < times; n++ {
			<-done
		}
		return
	}
	address := "10.9.1.1:9000"
	if len(os.Args) > 3 {
		address = os.Args[3]
	}
	for n := 0; n < times; n++ {
		conn, err := net.Dial("tcp", address)
		check(err)
		_, err = conn.Write([]byte("hello"))
		check(err)
		check(conn.(*net.TCPConn).CloseWrite())
		text, err := io.ReadAll(conn)
		check(err)
		if string(text) != "hello" {
			os.Exit(5)
		}
		conn.Close()
	}
	os.Exit(7)
}
"#;
