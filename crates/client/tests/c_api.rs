//! C programs on the C library, shared and static, against a real node.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use carina_client::FlowSpec;
use support::{House, Killed, app};

#[derive(Clone, Copy)]
enum Library {
    Shared,
    Static,
}

/// Where cargo put the libraries of the profile in which this test was built.
fn libraries() -> PathBuf {
    std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Compiles a C program strictly.
fn compile(house: &House, source: &str, library: Library) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = house.directory.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-pedantic"])
        .arg(format!("-I{}", root.join("include").display()))
        .arg(root.join(source))
        .arg("-o")
        .arg(&program);
    match library {
        Library::Shared => {
            let place = libraries();
            cc.arg(format!("-L{}", place.display()))
                .arg("-lcarina_client")
                .arg(format!("-Wl,-rpath,{}", place.display()));
        }
        Library::Static => {
            cc.arg(libraries().join("libcarina_client.a"))
                .args(["-lpthread", "-ldl", "-lm"]);
        }
    }
    let output = cc.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

fn run(house: &House, program: &Path, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .env("CARINA_RUN", house.run_dir())
        .output()
        .unwrap()
}

fn succeeds(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn echo_program_serves_and_asks_with_either_library() {
    for library in [Library::Shared, Library::Static] {
        let house = House::new();
        let _running = house.node();
        let program = compile(&house, "examples/c/echo.c", library);
        let server = Command::new(&program)
            .args(["server", "c.echo"])
            .env("CARINA_RUN", house.run_dir())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Killed(server);
        let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "registered c.echo");

        for (count, size) in [("1000", "1"), ("200", "1400"), ("20", "65536")] {
            let said = succeeds(&run(&house, &program, &["client", "c.echo", count, size]));
            assert_eq!(said, format!("{count} SDUs of {size} bytes came back\n"));
            assert_eq!(lines.next().unwrap().unwrap(), "flow from echo.client");
        }

        // A Rust program on rings talks to the C program on its socket.
        let spec = FlowSpec::reliable();
        let node = house.client();
        let mut flow = node
            .allocate(&app("rust"), &app("c.echo"), None, &spec)
            .unwrap();
        for size in [1, 100, 65_000] {
            let sdu: Vec<u8> = (0..size).map(|n| (n * 13) as u8).collect();
            flow.send(&sdu).unwrap();
            assert!(flow.recv_vec(70_000).unwrap() == sdu);
        }
        drop(flow);

        let unknown = run(&house, &program, &["client", "nobody", "1", "1"]);
        assert_eq!(unknown.status.code(), Some(1));
        let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
        assert!(
            said.contains("rina_flow_alloc_wait: Operation not permitted"),
            "{said}"
        );
    }
}

#[test]
fn every_call_answers_and_fails_as_documented() {
    let house = House::new();
    let _running = house.node();
    let program = compile(&house, "crates/client/tests/c/calls.c", Library::Shared);
    assert_eq!(
        succeeds(&run(&house, &program, &[])),
        "all calls are as they should be\n"
    );
}

#[test]
fn header_is_good_cxx_as_well() {
    let house = House::new();
    let source = house.directory.path().join("header.cc");
    std::fs::write(
        &source,
        "#include <rina/api.h>\nint main() { return rina_open() >= 0; }\n",
    )
    .unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let output = Command::new("cc")
        .args(["-xc++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-I{}", include.display()))
        .arg(&source)
        .output();
    match output {
        // A compiler without its C++ half says so.
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("cc1plus") => {
            println!("skipped: this cc compiles no C++");
        }
        output => drop(succeeds(&output.unwrap())),
    }
}
