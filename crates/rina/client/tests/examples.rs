//! Runs the examples of this crate with a real node.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::{House, Killed};

/// The directory of the built examples. The first call builds them.
fn examples() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        // Builds the whole workspace, like `cargo test`. Building one package alone would select
        // other features of its dependencies and recompile everything.
        cargo.args(["build", "--quiet", "--workspace", "--examples"]);
        assert!(cargo.status().unwrap().success());
        let tests = std::env::current_exe().unwrap();
        tests.ancestors().nth(2).unwrap().join("examples")
    })
}

fn example(house: &House, name: &str) -> Command {
    let mut command = Command::new(examples().join(name));
    command.env("CARINA_RUN", house.run_dir());
    command
}

/// Starts a server and waits until its name is registered.
fn server(house: &House, name: &str) -> Killed {
    let mut command = example(house, name);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let child = Killed(child);
    assert_eq!(lines.next().unwrap().unwrap(), "registered as echo.example");
    // The server would be killed by SIGPIPE if its standard output were closed.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// The output of a client that sends two SDUs.
fn ask(house: &House) -> String {
    let mut command = example(house, "client");
    let output = command.args(["echo.example", "hello", "two words"]);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_example_server_answers_the_example_client() {
    let house = House::new();
    let _node = house.node();
    let _server = server(&house, "server");
    let output = ask(&house);
    assert!(
        output.ends_with("in DIF local\nhello\ntwo words\n"),
        "{output}"
    );
}

#[test]
fn the_nonblocking_example_serves_clients_at_once() {
    let house = House::new();
    let _node = house.node();
    let _server = server(&house, "nonblocking");
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3).map(|_| scope.spawn(|| ask(&house))).collect();
        for client in clients {
            let output = client.join().unwrap();
            assert!(output.ends_with("hello\ntwo words\n"), "{output}");
        }
    });
}
