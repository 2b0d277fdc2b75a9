//! C programs that use the C library, shared and static, with a real node.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use carina_client::FlowSpec;
use carina_engine::counters::{self, Value};
use carina_node::Config;

use crate::support::sleeping::PATIENCE;
use crate::support::{House, Killed, app, eventually};

#[derive(Clone, Copy, Debug)]
enum Library {
    /// `librina.so`, as `-lrina` finds it.
    Shared,
    /// `librina.a`, with a shared C library.
    Static,
    /// `libcarina_client.a`: the calls without `read` and `write`.
    Calls,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Builds `libcarina_client.a` as `make install` does, once, in the profile of this test.
fn archive() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let is_dev = cfg!(debug_assertions);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo
            .args(["rustc", "--quiet", "--offline", "--package=carina-client"])
            .args(["--lib", "--crate-type=staticlib"])
            .args((!is_dev).then_some("--release"))
            .arg("--target-dir")
            .arg(target)
            .current_dir(root());
        let made = cargo.output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let profile = if is_dev { "debug" } else { "release" };
        target.join(profile).join("libcarina_client.a")
    })
}

/// Builds librina as `make install` does, once.
fn librina() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("librina");
        let made = Command::new(root().join("scripts/librina"))
            .arg(archive())
            .arg(&directory)
            .output();
        assert_eq!(succeeds(&made.unwrap()), "");
        directory
    })
}

/// Compiles a C program with all warnings as errors.
fn compile(house: &House, source: &str, library: Library, flags: &[&str]) -> PathBuf {
    let program = house.directory.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg("-pthread")
        .args(flags)
        .arg(format!("-I{}", root().join("include").display()))
        .arg(root().join(source))
        .arg("-o")
        .arg(&program);
    let link = |cc: &mut Command, place: &Path, name: &str| {
        cc.arg(format!("-L{}", place.display()))
            .arg(name)
            .arg(format!("-Wl,-rpath,{}", place.display()));
    };
    match library {
        Library::Shared => link(&mut cc, librina(), "-lrina"),
        Library::Static => {
            cc.arg(librina().join("librina.a")).args(["-ldl", "-lm"]);
        }
        Library::Calls => {
            cc.arg(archive()).args(["-ldl", "-lm"]);
        }
    }
    assert_eq!(succeeds(&cc.output().unwrap()), "");
    program
}

fn command(house: &House, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("CARINA_RUN", house.run_dir())
        // Cargo may set this to a directory with an older build. The program finds its library by
        // its run path.
        .env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs a program to its end. A program that does not end is a failure.
fn run(house: &House, program: &Path, arguments: &[&str]) -> Output {
    let mut command = command(house, program, arguments);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Killed(command.spawn().unwrap());
    let patience = Instant::now() + 2 * PATIENCE;
    while running.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < patience, "{program:?} does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut output = Output {
        status: running.0.wait().unwrap(),
        stdout: Vec::new(),
        stderr: Vec::new(),
    };
    let (mut stdout, mut stderr) = (running.0.stdout.take(), running.0.stderr.take());
    let (stdout, stderr) = (stdout.as_mut().unwrap(), stderr.as_mut().unwrap());
    stdout.read_to_end(&mut output.stdout).unwrap();
    stderr.read_to_end(&mut output.stderr).unwrap();
    output
}

/// Starts a server and returns the lines that it prints.
fn serve(
    house: &House,
    program: &Path,
    arguments: &[&str],
) -> (Killed, Lines<BufReader<ChildStdout>>) {
    let mut command = command(house, program, arguments);
    let mut server = Killed(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    (server, lines)
}

fn succeeds(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program of `tests/c`, which checks its results itself.
fn holds(program: &str, libraries: &[Library], arguments: &[&str]) {
    holds_on(|_| (), program, libraries, arguments);
}

fn holds_on(
    configure: impl Fn(&mut Config),
    program: &str,
    libraries: &[Library],
    arguments: &[&str],
) {
    for &library in libraries {
        let house = House::new();
        let mut config = house.config();
        configure(&mut config);
        let _running = carina_node::Node::spawn(config).unwrap();
        let source = format!("crates/rina/client/tests/c/{program}.c");
        let program = compile(&house, &source, library, &[]);
        assert_eq!(
            succeeds(&run(&house, &program, arguments)),
            "as it should be\n",
            "{library:?}"
        );
        // The program must have left no registrations and flows behind.
        let node = house.client();
        eventually("its names are free", || {
            node.register(&app("many"), None).is_ok()
        });
    }
}

#[test]
fn names_are_registered_and_unregistered() {
    holds("names", &[Library::Shared, Library::Calls], &[]);
}

#[test]
fn requests_are_accepted_and_refused() {
    holds("accept", &[Library::Calls], &["64"]);
    let generous = |config: &mut Config| config.limits.flow_requests_per_app = 300;
    holds_on(generous, "accept", &[Library::Shared], &["300"]);
}

#[test]
fn flows_are_allocated_or_refused() {
    holds(
        "alloc",
        &[Library::Shared, Library::Calls],
        &["local", "65536"],
    );
}

#[test]
fn reading_gives_one_sdu_at_most_and_keeps_the_rest() {
    holds("reads", &[Library::Shared, Library::Static], &[]);
}

#[test]
fn writing_waits_for_space_and_knows_the_largest_sdu() {
    holds("writes", &[Library::Shared, Library::Static], &[]);
}

#[test]
fn stream_carries_writes_of_any_length() {
    holds("stream", &[Library::Shared], &[]);
}

#[test]
fn signals_end_every_wait() {
    holds("signals", &[Library::Shared], &[]);
}

#[test]
fn copies_threads_and_processes_share_descriptors() {
    holds("sharing", &[Library::Shared, Library::Static], &[]);
}

#[test]
fn one_thread_serves_many_flows_with_select() {
    holds("select_server", &[Library::Shared], &[]);
}

#[test]
fn echo_program_serves_and_asks_with_every_library() {
    for library in [Library::Shared, Library::Static, Library::Calls] {
        let house = House::new();
        let _running = house.node();
        let program = compile(&house, "examples/c/echo.c", library, &[]);
        let (_server, mut lines) = serve(&house, &program, &["server", "c.echo"]);
        assert_eq!(lines.next().unwrap().unwrap(), "registered c.echo");

        for (count, size) in [("1000", "1"), ("200", "1400"), ("20", "65536")] {
            let output = succeeds(&run(&house, &program, &["client", "c.echo", count, size]));
            assert_eq!(output, format!("{count} SDUs of {size} bytes came back\n"));
            assert_eq!(lines.next().unwrap().unwrap(), "flow from echo.client");
        }
        let unknown = run(&house, &program, &["client", "nobody", "1", "1"]);
        assert_eq!(unknown.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&unknown.stderr).into_owned();
        assert!(
            stderr.contains("rina_flow_alloc_wait: Operation not permitted"),
            "{stderr}"
        );
    }
}

#[test]
fn rust_program_on_rings_talks_to_c_program_on_its_socket() {
    let house = House::new();
    let _running = house.node();
    let program = compile(&house, "examples/c/echo.c", Library::Shared, &[]);
    let (_server, mut lines) = serve(&house, &program, &["server", "c.echo"]);
    assert_eq!(lines.next().unwrap().unwrap(), "registered c.echo");
    let node = house.client();
    for spec in [
        FlowSpec::reliable(),
        FlowSpec {
            msg_boundaries: false,
            ..FlowSpec::reliable()
        },
    ] {
        let mut flow = node
            .allocate(&app("rust"), &app("c.echo"), None, &spec)
            .unwrap();
        // The C program must not mistake an empty SDU for the end of the flow.
        flow.send(&[]).unwrap();
        for size in [1, 100, 65_000] {
            let sdu: Vec<u8> = (0..size).map(|n| (n * 13) as u8).collect();
            flow.send(&sdu).unwrap();
            assert!(flow.recv_vec(70_000).unwrap() == sdu);
        }
    }
}

#[test]
fn what_is_written_after_the_peer_has_closed_is_discarded() {
    for library in [Library::Shared, Library::Calls] {
        let house = House::new();
        let _running = house.node();
        let node = house.client();
        let mut server = node.register(&app("server"), None).unwrap();
        let program = compile(
            &house,
            "crates/rina/client/tests/c/last_word.c",
            library,
            &[],
        );
        let answering = std::thread::spawn(move || {
            let mut flow = server.accept().unwrap();
            assert_eq!(flow.recv_vec(100).unwrap(), b"begin");
            flow.send(b"result").unwrap();
        });
        let mut command = command(&house, &program, &["server"]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = Killed(command.spawn().unwrap());
        let mut lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "written", "{library:?}");
        answering.join().unwrap();
        eventually("what was discarded is counted", || {
            let rows = counters::read(&house.run_dir().join("counters")).unwrap();
            let ended = rows.iter().map(|row| row.get(Value::DropFlowEnded));
            ended.sum::<u64>() == 5
        });
        client.0.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "as it should be");
        assert!(client.0.wait().unwrap().success());
    }
}

#[test]
fn asynchronous_echo_carries_many_flows_in_one_thread() {
    let house = House::new();
    let _running = house.node();
    let program = compile(
        &house,
        "examples/c/echo-async.c",
        Library::Shared,
        // Distributions build with these flags, with which `read` is another function.
        &["-O2", "-D_FORTIFY_SOURCE=2"],
    );
    let (mut server, mut lines) = serve(&house, &program, &["-l", "-n", "42", "-d", "local"]);
    assert_eq!(lines.next().unwrap().unwrap(), "registered");
    for (flows, text) in [("40", "one of many"), ("1", "alone")] {
        let output = succeeds(&run(&house, &program, &["-p", flows, text]));
        let count = flows.parse().unwrap();
        assert_eq!(output, format!("{text}\n").repeat(count));
    }
    let output = succeeds(&run(&house, &program, &["-g", "0", "-s", "4096", "long"]));
    assert!(
        output.starts_with("long....") && output.len() == 61,
        "{output}"
    );
    assert!(server.0.wait().unwrap().success());
    let served: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(served.len(), 42);
    assert_eq!(served[0], "flow from echo-async-client, gap -1");
    assert_eq!(served[41], "flow from echo-async-client, gap 0");
}

#[test]
fn measuring_program_agrees_on_a_run_over_its_own_flow() {
    let house = House::new();
    let _running = house.node();
    let program = compile(&house, "examples/c/measure.c", Library::Shared, &[]);
    let (mut server, mut lines) = serve(&house, &program, &["-l", "-n", "3"]);
    assert_eq!(lines.next().unwrap().unwrap(), "registered");
    let run = |arguments: &[&str]| succeeds(&run(&house, &program, arguments));
    let output = run(&["ping", "-c", "200", "-s", "1400", "-g", "0"]);
    assert!(output.starts_with("200 round trips, "), "{output}");
    assert!(
        output.contains("received 280000 bytes in 200 SDUs in "),
        "{output}"
    );
    let output = run(&["flood", "-c", "1000", "-s", "1000", "-g", "0"]);
    assert!(
        output.starts_with("received 1000000 bytes in 1000 SDUs in "),
        "{output}"
    );
    let output = run(&["stream", "-c", "3", "-s", "1000000"]);
    assert!(output.starts_with("received 3000000 bytes in "), "{output}");
    assert!(server.0.wait().unwrap().success());
}

/// Compiles the header alone.
fn header(language: &str, standard: &str) {
    let house = House::new();
    let source = house.directory.path().join("header");
    let text = "#include <rina/api.h>\n#include <rina/api.h>\n\
                int main(void) { struct rina_flow_spec spec; rina_flow_spec_default(&spec);\n\
                return rina_open() >= 0 && spec.version == RINA_FLOW_SPEC_VERSION\n\
                && spec.max_loss == RINA_FLOW_SPEC_LOSS_MAX; }\n";
    std::fs::write(&source, text).unwrap();
    let output = Command::new("cc")
        .args([&format!("-x{language}"), &format!("-std={standard}")])
        .args(["-fsyntax-only", "-pedantic", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{}", root().join("include").display()))
        .arg(&source)
        .output()
        .unwrap();
    // This is what a compiler without C++ support prints.
    if String::from_utf8_lossy(&output.stderr).contains("cc1plus") {
        println!("SKIP: this cc compiles no C++");
        return;
    }
    assert_eq!(succeeds(&output), "", "{language} {standard}");
}

#[test]
fn header_is_good_c_and_cxx_of_every_standard() {
    for standard in ["c99", "c11", "gnu17"] {
        header("c", standard);
    }
    for standard in ["c++11", "c++20"] {
        header("c++", standard);
    }
}

#[test]
fn pkg_config_tells_how_to_compile_and_link() {
    let house = House::new();
    let _running = house.node();
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "rina"])
        .env("PKG_CONFIG_PATH", librina())
        .output();
    let Ok(output) = asked else {
        println!("SKIP: no pkg-config here");
        return;
    };
    let flags = succeeds(&output);
    let program = house.directory.path().join("program");
    let compiled = Command::new("cc")
        .arg(root().join("crates/rina/client/tests/c/names.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert_eq!(succeeds(&compiled), "");
    let mut command = command(&house, &program, &[]);
    let ran = command.env("LD_LIBRARY_PATH", librina()).output().unwrap();
    assert_eq!(succeeds(&ran), "as it should be\n");
}
