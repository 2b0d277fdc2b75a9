//! Runs clients of measurements in other systems, by `carina bench client` with a request.

use carina_lab::{TestGuest, TestNode};

use super::request::{Measurement, Request};
use crate::error::{Attempt, Error, Result};

/// Lets a client on a node measure.
///
/// # Errors
/// The client cannot be started, or cannot reach the server.
pub(super) fn client_on(node: &TestNode, request: &Request) -> Result<Vec<Measurement>> {
    let program = std::env::current_exe().attempt("finding this program")?;
    let limit = request.limit();
    let request = serde_json::to_string(request).attempt("writing a request")?;
    let run = node.path().to_string_lossy();
    let arguments = ["bench", "client", "--run", &run, &request];
    parse(&node.run(&program.to_string_lossy(), &arguments, limit)?)
}

/// Lets a client in a guest measure.
///
/// # Errors
/// The client cannot reach the server.
pub(super) fn client_in(guest: &TestGuest, request: &Request) -> Result<Vec<Measurement>> {
    let limit = request.limit();
    let request = serde_json::to_string(request).attempt("writing a request")?;
    let output = guest.run_within(&format!("carina bench client '{request}'"), limit)?;
    if output.is_success() {
        parse(&output.text())
    } else {
        Err(Error::Client(output.error_text()))
    }
}

fn parse(printed: &str) -> Result<Vec<Measurement>> {
    let lines = printed.lines();
    lines
        .map(|line| serde_json::from_str(line).attempt(format!("reading {line:?}")))
        .collect()
}
