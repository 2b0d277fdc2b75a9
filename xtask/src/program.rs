//! One test program, as Cargo has built it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// After this long a program counts as hung.
const LIMIT: Duration = Duration::from_secs(30 * 60);

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
pub struct Program {
    /// The manifest of its package.
    manifest: PathBuf,
    /// The name of its target.
    target: String,
    /// What kind of target: `lib`, `bin`, `test` …
    kind: String,
    executable: PathBuf,
}

/// What a program did.
pub struct Ran {
    /// Both of its outputs, in the order in which they came.
    pub output: Vec<u8>,
    /// From start to end.
    pub took: Duration,
    /// Why it counts as failed.
    pub ended: Result<(), String>,
}

impl Program {
    /// Reads a message of `cargo test --no-run --message-format=json` ("Artifact Messages" in the
    /// Cargo Book, "External Tools"); `None` when it is not about a test program.
    pub fn of(message: &str) -> Option<Program> {
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
    pub fn name(&self) -> String {
        let package = self.directory().file_name().unwrap_or_default();
        match self.kind.as_str() {
            "test" => format!("{} {}", package.display(), self.target),
            kind => format!("{} ({kind})", package.display()),
        }
    }

    /// A guess at how long it runs, to begin with the longest: those of [`LONG`], then integration
    /// tests by size, which run the more of the product the larger they are.
    pub fn weight(&self) -> (usize, bool, u64) {
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

/// Runs a program as Cargo does: in its package's directory, with the variables that tests read.
pub fn run(program: &Program) -> Ran {
    let begun = Instant::now();
    let mut output = Vec::new();
    let ended = output_of(program, &mut output);
    Ran {
        output,
        took: begun.elapsed(),
        ended,
    }
}

fn output_of(program: &Program, output: &mut Vec<u8>) -> Result<(), String> {
    let cannot = |error: std::io::Error| format!("{}: {error}", program.executable.display());
    // A file, since whatever a test has left behind would hold a pipe open.
    let path = program.executable.with_extension("output");
    let file = File::create(&path).map_err(cannot)?;
    let mut child = Command::new(&program.executable)
        .current_dir(program.directory())
        .env("CARGO_MANIFEST_DIR", program.directory())
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(cannot)?)
        .stderr(file)
        .spawn()
        .map_err(cannot)?;
    let status = wait(&mut child, LIMIT).map_err(cannot);
    *output = std::fs::read(&path).map_err(cannot)?;
    match status? {
        None => Err(format!("ended after {} minutes", LIMIT.as_secs() / 60)),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("failed: {status}")),
    }
}

/// Waits for the end of a process; kills it, and says `None`, when it takes longer than `limit`.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

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

    #[test]
    fn a_program_that_fails_says_how_and_keeps_its_output() {
        let directory = std::env::temp_dir().join(format!("xtask-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let executable = directory.join("program");
        let program = Program {
            manifest: directory.join("Cargo.toml"),
            target: "all".into(),
            kind: "test".into(),
            executable: executable.clone(),
        };
        assert!(run(&program).ended.is_err());
        std::os::unix::fs::symlink("/bin/pwd", &executable).unwrap();
        let ran = run(&program);
        assert_eq!(ran.ended, Ok(()));
        assert_eq!(ran.output, format!("{}\n", directory.display()).as_bytes());
        std::fs::remove_file(&executable).unwrap();
        std::os::unix::fs::symlink("/bin/false", &executable).unwrap();
        assert!(run(&program).ended.unwrap_err().contains("status: 1"));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let ended = wait(&mut child, Duration::from_millis(50)).unwrap();
        assert_eq!(ended, None);
    }
}
