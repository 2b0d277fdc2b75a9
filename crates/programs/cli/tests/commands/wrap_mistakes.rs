//! Wrong uses of `carina wrap`: each gets an error that says what is wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::node::{CARINA, Node, PATIENCE, both_in_one};
use super::within::{is_running, output_of};
use super::wrap::{has_python, serve};

/// One wrong use: options and program, the exit code, and a part of the error.
type Row = (&'static [&'static str], i32, &'static str);

/// Mistakes on the command line, and programs that cannot be wrapped.
const ROWS: [Row; 24] = [
    (&[], 2, "<PROGRAM>"),
    (
        &["--kind", "other", "true"],
        2,
        "possible values: preload, seccomp",
    ),
    (&["--dif", "net", "true"], 2, "--as <HOST>"),
    (&["--as", "", "true"], 2, "1 to 253 letters"),
    (&["--as", "a b", "true"], 2, "'a b' for '--as <HOST>'"),
    (
        &["--as", "x", "--dif", "", "true"],
        2,
        "a name of a DIF is empty",
    ),
    (&["--rule", "x", "true"], 2, "rule \"x\" has no \"->\""),
    (
        &["--rule", "*:99999 -> dif", "true"],
        2,
        "\"99999\" is neither a port",
    ),
    (
        &["--rule", "*:9-8 -> dif", "true"],
        2,
        "\"9-8\" is neither a port",
    ),
    (
        &["--rule", "10.0.0.0/33 -> dif", "true"],
        2,
        "it has 0 to 32",
    ),
    (
        &["--rule", "* -> diff", "true"],
        2,
        "target \"diff\" must be kernel, refuse or dif",
    ),
    (
        &["--rule", "* -> dif as {hots}", "true"],
        2,
        "{hots} must be {host}, {name} or {port}",
    ),
    (
        &["--rule", "* -> kernel", "--rule", "a.vm -> dif", "true"],
        2,
        "\"a.vm -> dif as {host}:{port}\" is never used",
    ),
    (
        &["--rule", "* -> dif nosuch", "true"],
        0,
        "in no DIF nosuch (it is in: local, net)",
    ),
    (
        &["no-such-program"],
        3,
        "no-such-program: there is no such program in PATH",
    ),
    (&["./absent"], 3, "./absent: No such file"),
    (&["./directory"], 3, "./directory is not an executable file"),
    (&["./text"], 3, "./text is not an executable file"),
    (
        &["./words"],
        3,
        "./words is neither an ELF program nor a script",
    ),
    (&["./setuid"], 3, "./setuid is set-user-ID or set-group-ID"),
    (&["./bits32"], 3, "./bits32 is a program for 32 bits"),
    (
        &["./arm"],
        3,
        "./arm is a program for another processor (machine 40)",
    ),
    (
        &["./loop"],
        3,
        "/loop: a script's interpreter is a script, more than 5 times over",
    ),
    (
        &[
            "--kind",
            "seccomp",
            CARINA,
            "--run",
            "run",
            "wrap",
            "--kind",
            "seccomp",
            "/bin/true",
        ],
        3,
        "runs under another seccomp supervisor",
    ),
];

/// Files of programs that cannot be wrapped.
fn write_programs(directory: &Path) {
    let elf = |class: u8, machine: u8| {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[18] = machine;
        bytes
    };
    let this = std::fs::read("/bin/true").unwrap();
    let script = format!("#!{}\n", directory.join("loop").display());
    for (name, bytes, mode) in [
        ("text", b"text".to_vec(), 0o644),
        ("words", b"no program".to_vec(), 0o755),
        ("setuid", this, 0o4755),
        ("bits32", elf(1, 3), 0o755),
        ("arm", elf(2, 40), 0o755),
        ("loop", script.into_bytes(), 0o755),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::create_dir(directory.join("directory")).unwrap();
}

fn attempt(node: &Node, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(CARINA);
    command.args(["--run", "run", "wrap"]).args(words);
    command.current_dir(&node.directory);
    let output = output_of(&mut command);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), printed)
}

#[test]
fn wrong_uses_of_wrap_get_clear_errors() {
    let node = both_in_one();
    write_programs(node.directory.path());
    for (words, code, part) in ROWS {
        let (ended, printed) = attempt(&node, words);
        assert_eq!(ended, Some(code), "{words:?}: {printed}");
        assert!(printed.contains(part), "{words:?}: {printed}");
    }
    let nowhere = ["--run", "none", "wrap", "true"];
    let mut command = Command::new(CARINA);
    let output = output_of(command.args(nowhere).current_dir(&node.directory));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("start one with `carina node`"),
        "{printed}"
    );
}

/// What goes wrong while the program runs, as the program's errors.
#[test]
fn program_gets_the_error_of_each_failure() {
    if !Path::new("/usr/bin/python3").exists() {
        return println!("SKIP: there is no /usr/bin/python3 here");
    }
    let node = both_in_one();
    let program = "
import errno, os, signal, socket, sys
def attempt(act):
    try: act(); print('done')
    except OSError as error: print(errno.errorcode.get(error.errno, error))
to = lambda host: lambda: socket.create_connection((host, 80))
def listen(port, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET, kind); s.bind(('0.0.0.0', port)); return s
attempt(to('missing.dif.internal')); attempt(to('refused.vm')); attempt(to('away.vm'))
a = listen(80); attempt(lambda: listen(80)); attempt(to('me.dif.internal'))
u = listen(80, socket.SOCK_DGRAM); attempt(lambda: listen(80, socket.SOCK_DGRAM))
attempt(lambda: listen(81))
os.kill(int(sys.argv[1]), signal.SIGKILL)
while True:
    try: socket.create_connection(('127.0.0.9', 80))
    except OSError as error:
        if error.errno != errno.ECONNREFUSED and error.errno != errno.ECONNABORTED: break
attempt(to('127.0.0.9')); attempt(lambda: listen(82))
";
    let pid = node.pid().to_string();
    let rules = [
        "refused.vm -> refuse",
        "away.vm -> dif nosuch",
        "*.dif.internal -> dif as {name}:{port}",
        "127.0.0.9 -> dif as missing:{port}",
        "listen 0.0.0.0:81 -> refuse",
        "listen 0.0.0.0 -> dif as me:{port}",
    ];
    let mut command = Command::new(CARINA);
    command
        .args(["--run", "run", "wrap"])
        .current_dir(&node.directory);
    command.args(rules.iter().flat_map(|rule| ["--rule", rule]));
    command.args(["/usr/bin/python3", "-c", program, &pid]);
    let output = output_of(&mut command);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let wanted = [
        "ECONNREFUSED",
        "ECONNREFUSED",
        "EHOSTUNREACH",
        "EADDRINUSE",
        "ECONNREFUSED",
        "EADDRINUSE",
        "EACCES",
        "ENETUNREACH",
        "ENETUNREACH",
    ];
    assert_eq!(printed.lines().collect::<Vec<_>>(), wanted, "{errors}");
}

/// `kill -9` of the supervisor, which nothing can tell its program.
#[test]
fn program_ends_with_its_supervisor() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let program = "
import os, time
open('pid', 'w').write(str(os.getpid())); print('listening', flush=True); time.sleep(600)
";
    let file = node.directory.path().join("pid");
    let program = program.replace("'pid'", &format!("{:?}", file.display().to_string()));
    drop(serve(&node, &["--kind", "seccomp"], &program));
    let process = std::fs::read_to_string(file).unwrap();
    let start = Instant::now();
    while is_running(process.parse().unwrap()) {
        assert!(start.elapsed() < PATIENCE, "{process} runs on");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A program whose own filter forbids `AF_UNIX` sockets, which the library needs.
#[test]
fn program_with_its_own_filter_gets_its_error_or_a_supervisor() {
    if !has_python() {
        return;
    }
    let node = both_in_one();
    let directory = node.directory.path();
    std::fs::write(directory.join("filter.c"), FILTERED).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-o", "filter", "filter.c"]).current_dir(directory);
    if !cc.status().is_ok_and(|status| status.success()) {
        return println!("SKIP: there is no compiler of C here");
    }
    let program = "
import socket
s = socket.socket(); s.bind(('0.0.0.0', 9)); s.listen(); print('listening', flush=True)
s.accept()[0].close()
";
    let _server = serve(&node, &["--as", "srv"], program);
    for (kind, code) in [("preload", 1), ("seccomp", 0)] {
        let rule = "10.9.1.1:9 -> dif as srv:9";
        let words = ["--kind", kind, "--rule", rule, "./filter"];
        let (ended, printed) = attempt(&node, &words);
        assert_eq!(ended, Some(code), "{kind}: {printed}");
    }
}

/// Ends with the number of the error of `connect`: 1 is `EPERM`.
const FILTERED: &str = r#"
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

int main(void) {
    struct sock_filter code[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, nr)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_socket},
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(struct seccomp_data, args[0])},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, AF_UNIX},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
        {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
    };
    struct sock_fprog filter = {6, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 20;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 21;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    to.sin_addr.s_addr = inet_addr("10.9.1.1");
    return connect(s, (void *)&to, sizeof to) ? errno : 0;
}
"#;
