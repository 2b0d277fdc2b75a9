//! What a node is given at its start: files, then commands.

use std::fmt::Write;
use std::time::Duration;

use carina_vnet::document::{NodeFile, Start};

use super::Node;
use crate::error::{Error, Result};

impl Node {
    /// Writes the files of the document into the node, then runs its commands in their order.
    /// `tell` gets a line for each.
    ///
    /// # Errors
    /// The first file that cannot be written, or the first command that fails or does not end in
    /// time. The error names the node and the command.
    pub(crate) fn start(&self, start: &Start, tell: &dyn Fn(String)) -> Result<()> {
        for file in &start.files {
            let what = format!("writing {}", file.path);
            for script in scripts_of(file) {
                self.step(&what, &script, FILE)?;
            }
            tell(format!("node {}: {} is written", self.name, file.path));
        }
        for command in &start.exec {
            let output = self.step(command, command, start.deadline())?;
            let shown = match output.trim_end() {
                "" => String::new(),
                output => format!(": {}", beginning(output)),
            };
            tell(format!(
                "node {}: `{}`{shown}",
                self.name,
                beginning(command)
            ));
        }
        Ok(())
    }

    /// Runs a step of the start, and returns its standard output.
    fn step(&self, what: &str, script: &str, limit: Duration) -> Result<String> {
        let failed = |problem: String| Error::Start {
            node: self.name.clone(),
            command: beginning(what),
            problem,
        };
        match self.run(script, limit) {
            Ok(output) if output.is_success() => Ok(output.text()),
            Ok(output) => {
                let outputs = [output.error_text(), output.text()];
                let printed = match outputs.iter().find(|text| !text.is_empty()) {
                    Some(text) => format!(": {}", beginning(text)),
                    None => ", without output".to_owned(),
                };
                Err(failed(format!("exit status {}{printed}", output.status)))
            }
            Err(Error::Timeout { limit, .. }) => Err(failed(format!(
                "it has not ended after {limit:?}; exec_deadline sets the longest time"
            ))),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// The scripts that write a file, in pieces that an argument of a command can hold.
fn scripts_of(file: &NodeFile) -> Vec<String> {
    let path = quoted(&file.path);
    let directory = file
        .path
        .rsplit_once('/')
        .map_or("/", |(directory, _)| directory);
    let mut first = String::new();
    if !directory.is_empty() {
        let _ = write!(first, "mkdir -p {} && ", quoted(directory));
    }
    // A link at this place is replaced, not followed.
    let _ = write!(
        first,
        "rm -f {path} && : >{path} && chmod {:o} {path}",
        file.mode()
    );
    let mut scripts = vec![first];
    let mut left = file.content.as_deref().unwrap_or_default();
    while !left.is_empty() {
        let mut end = left.len().min(PIECE);
        while !left.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, rest) = left.split_at(end);
        scripts.push(format!("printf %s {} >>{path}", quoted(piece)));
        left = rest;
    }
    scripts
}

/// A text as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The beginning of a text of a node or document, on one line.
fn beginning(text: &str) -> String {
    let plain = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SHOWN).collect()
}

/// Bytes of a file that one command writes. Quotes may make them four times as long; Linux passes
/// arguments of up to 128 KiB. (execve(2))
const PIECE: usize = 16 << 10;
/// Longest time for writing a piece of a file.
const FILE: Duration = Duration::from_secs(60);
/// Characters of a command, or of its output, that an event or error shows.
const SHOWN: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_are_written_in_pieces_that_make_up_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a b/it's");
        let content = "é'$x `y`\n\\t%s".repeat(3000);
        let file = NodeFile {
            path: path.to_str().unwrap().to_owned(),
            content: Some(content.clone()),
            mode: Some("0750".to_owned()),
            ..NodeFile::default()
        };
        let scripts = scripts_of(&file);
        assert!(scripts.len() > 2 && scripts.iter().all(|script| script.len() < 100_000));
        for script in scripts {
            let done = std::process::Command::new("sh")
                .args(["-c", &script])
                .status();
            assert!(done.unwrap().success(), "{script}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}
