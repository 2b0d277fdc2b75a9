//! One test program, as Cargo has built it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::report::Sum;

/// Programs that run for half a minute and more, longest first; most of it guests that boot.
const LONG: [&str; 8] = [
    "cli guests",
    "sim all",
    "cli all",
    "ports all",
    "client all",
    "node all",
    "vm boot",
    "model loom",
];

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The manifest of its package.
    manifest: PathBuf,
    /// The name of its target.
    target: String,
    /// What kind of target: `lib`, `bin`, `test` …
    kind: String,
    executable: PathBuf,
}

/// What a program did.
pub(crate) struct Ran {
    /// What its supervisor has printed, without the line of the sum.
    pub output: Vec<u8>,
    /// From start to end.
    pub duration: Duration,
    /// The results of its tests, or why it has no results.
    pub sum: Result<Sum, String>,
}

impl Program {
    /// Reads a message of `cargo test --no-run --message-format=json` ("Artifact Messages" in the
    /// Cargo Book, "External Tools"); `None` when it is not about a test program.
    pub(crate) fn of(message: &str) -> Option<Program> {
        let message: Value = serde_json::from_str(message).ok()?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            return None;
        }
        Some(Program {
            manifest: message["manifest_path"].as_str()?.into(),
            target: message["target"]["name"].as_str()?.into(),
            kind: message["target"]["kind"][0].as_str()?.into(),
            executable: message["executable"].as_str()?.into(),
        })
    }

    /// `package target`, as a person knows it.
    pub(crate) fn name(&self) -> String {
        let package = self.directory().file_name().unwrap_or_default();
        match self.kind.as_str() {
            "test" => format!("{} {}", package.display(), self.target),
            kind => format!("{} ({kind})", package.display()),
        }
    }

    /// A guess at how long it runs, to begin with the longest: those of [`LONG`], then integration
    /// tests by size, which run the more of the product the larger they are.
    pub(crate) fn weight(&self) -> (usize, bool, u64) {
        let name = self.name();
        let place = LONG.iter().position(|long| *long == name);
        let size = self.executable.metadata().map_or(0, |data| data.len());
        let rank = place.map_or(0, |place| LONG.len() - place);
        (rank, self.kind == "test", size)
    }

    fn directory(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("."))
    }
}

/// Runs a program under a supervisor (`supervise.rs`), in its package's directory and with the
/// variables that tests read, as Cargo does; `files` is the directory for temporary files. `only`
/// names the tests to run; without a name, all run.
pub(crate) fn run(program: &Program, files: &Path, only: &[&str]) -> Ran {
    let begun = Instant::now();
    let mut output = Vec::new();
    let sum = supervised(program, files, only, &mut output);
    Ran {
        output,
        duration: begun.elapsed(),
        sum,
    }
}

fn supervised(
    program: &Program,
    files: &Path,
    only: &[&str],
    output: &mut Vec<u8>,
) -> Result<Sum, String> {
    let cannot = |error: std::io::Error| format!("the supervisor did not run: {error}");
    let own = std::env::current_exe().map_err(cannot)?;
    let ended = Command::new(own)
        .arg("supervise")
        .arg(&program.executable)
        .args(only)
        .current_dir(program.directory())
        .env("CARGO_MANIFEST_DIR", program.directory())
        .env("TMPDIR", files)
        .env(VARIABLE, carina())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(cannot)?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let (shown, line) = text.trim_end().rsplit_once('\n').unwrap_or(("", &text));
    let sum = Sum::of_line(line.trim_end());
    let sum = sum.ok_or_else(|| format!("the supervisor {}: {text}", ended.status))?;
    output.extend_from_slice(shown.as_bytes());
    output.push(b'\n');
    Ok(sum)
}

/// The program `carina`, which the test programs of the workspace are built with.
pub(crate) fn carina() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("carina")
}

/// The variable by which tests of bindings find the program `carina`.
pub(crate) const VARIABLE: &str = "CARINA_PROGRAM";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_of_test_programs_name_a_program() {
        let message = r#"{"reason":"compiler-artifact","manifest_path":"/a/crates/b/Cargo.toml",
            "target":{"kind":["test"],"name":"all"},"profile":{"test":true},
            "executable":"/a/target/debug/deps/all-1"}"#;
        assert_eq!(Program::of(message).unwrap().name(), "b all");
        for (from, to) in [
            ("\"test\":true", "\"test\":false"),
            ("\"/a/target/debug/deps/all-1\"", "null"),
            ("compiler-artifact", "build-finished"),
        ] {
            assert_eq!(Program::of(&message.replace(from, to)), None);
        }
        assert_eq!(Program::of("not JSON"), None);
        let long = message.replace("crates/b/", "crates/vm/");
        let long = Program::of(&long.replace("\"all\"", "\"boot\"")).unwrap();
        assert!(long.weight() > Program::of(message).unwrap().weight());
    }
}
