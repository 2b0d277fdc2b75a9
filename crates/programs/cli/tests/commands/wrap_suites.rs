//! Suites of others under `carina wrap`: Debian's tests of Python, with all sockets over a DIF.

use std::path::Path;
use std::process::Command;

use super::node::CARINA;

/// `scripts/suites` runs all suites, and prints each test whose result differs, with the reason.
#[test]
fn tests_of_python_have_the_same_results_under_wrap() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .unwrap();
    for needed in [
        "/usr/bin/python3.11",
        "/usr/lib/python3.11/test/test_socket.py",
    ] {
        if !Path::new(needed).exists() {
            return println!("SKIP: no {needed} here; libpython3.11-testsuite of Debian has it");
        }
    }
    if !carina_namespaces::can_enter_private() {
        return println!("SKIP: a network namespace cannot be made here");
    }
    let mut command = Command::new(root.join("scripts/suites"));
    let output = command
        .arg("--quick")
        .env("CARINA", CARINA)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("test_socket: {"), "{printed}");
}
