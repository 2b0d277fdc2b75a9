//! The configuration of a Lua app, as a graph file has it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::syntax;

/// The configuration of the app `lua`: a script, its parameters, and its permissions.
///
/// The text of the script is part of the configuration, and is read together with the graph. A
/// changed script is therefore a changed configuration, and replaces the running app.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(try_from = "Keys")]
pub struct LuaConfig {
    pub(crate) script: Script,
    pub(crate) config: toml::Table,
    pub(crate) memory_bytes: usize,
    pub(crate) budget_ms: u64,
    pub(crate) allow: Vec<Library>,
}

/// A script: its text, and its name in error messages.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
}

/// A library of Lua that gives access to the system outside the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Access to files, and to shell commands through `io.popen`.
    Io,
    /// Access to environment variables, clock, files and commands.
    Os,
    /// Access to C functions. With it the script can do all that the process can, and can crash it.
    Ffi,
}

impl Library {
    /// The library's name in scripts and in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Library::Io => "io",
            Library::Os => "os",
            Library::Ffi => "ffi",
        }
    }
}

/// Counters that every Lua app has. A script cannot create counters of these names.
pub(crate) const COUNTERS: [&str; 4] = ["drop_freed", "drop_forgotten", "drop_stopped", "stopped"];

/// The keys in a graph file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    file: PathBuf,
    #[serde(default)]
    config: toml::Table,
    #[serde(default = "default_memory_mb")]
    memory_mb: usize,
    #[serde(default = "default_budget_ms")]
    budget_ms: u64,
    #[serde(default)]
    allow: Vec<Library>,
}

fn default_memory_mb() -> usize {
    64
}

fn default_budget_ms() -> u64 {
    50
}

/// Why a configuration of the app `lua` is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LuaConfigError {
    /// The script cannot be read.
    #[error("{}: {source}", file.display())]
    File {
        /// Path of the script.
        file: PathBuf,
        /// Why the operating system could not read the script.
        source: io::Error,
    },
    /// The script is too long; holds its path.
    #[error(
        "{}: the script is too long; a script has at most {} bytes",
        .0.display(),
        Script::BYTES_MAX
    )]
    Long(PathBuf),
    /// The script is not valid Lua; the text begins with its name and a line number.
    #[error("{0}")]
    Syntax(String),
    /// `memory_mb` is out of range; holds its value.
    #[error("memory_mb = {0}: must be 2 to 1024")]
    Memory(usize),
    /// `budget_ms` is out of range; holds its value.
    #[error("budget_ms = {0}: must be 1 to 10000")]
    Budget(u64),
}

impl Script {
    /// Length of the longest script, in bytes.
    pub const BYTES_MAX: u64 = 4 << 20;

    /// A script that is not read from a file, for tests.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Script {
        Script {
            name: name.into(),
            text: text.into(),
        }
    }

    fn read(file: &Path) -> Result<Script, LuaConfigError> {
        let failed = |source| LuaConfigError::File {
            file: file.to_owned(),
            source,
        };
        if std::fs::metadata(file).map_err(failed)?.len() > Script::BYTES_MAX {
            return Err(LuaConfigError::Long(file.to_owned()));
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        // Lua truncates long names, and the user knows the directory.
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        Ok(Script::of(&name, &text))
    }
}

impl LuaConfig {
    /// The configuration of a script, with the default limits.
    #[must_use]
    pub fn new(script: Script, config: toml::Table) -> LuaConfig {
        LuaConfig {
            script,
            config,
            memory_bytes: default_memory_mb() << 20,
            budget_ms: default_budget_ms(),
            allow: Vec::new(),
        }
    }

    /// Sets the CPU time that one call of the script may take, in milliseconds.
    #[must_use]
    pub fn with_budget_ms(mut self, budget_ms: u64) -> LuaConfig {
        self.budget_ms = budget_ms;
        self
    }
}

impl TryFrom<Keys> for LuaConfig {
    type Error = LuaConfigError;

    fn try_from(keys: Keys) -> Result<LuaConfig, LuaConfigError> {
        if !(2..=1024).contains(&keys.memory_mb) {
            return Err(LuaConfigError::Memory(keys.memory_mb));
        }
        if !(1..=10_000).contains(&keys.budget_ms) {
            return Err(LuaConfigError::Budget(keys.budget_ms));
        }
        let script = Script::read(&keys.file)?;
        syntax::check(&script.name, &script.text).map_err(LuaConfigError::Syntax)?;
        Ok(LuaConfig {
            script,
            config: keys.config,
            memory_bytes: keys.memory_mb << 20,
            budget_ms: keys.budget_ms,
            allow: keys.allow,
        })
    }
}

impl fmt::Debug for LuaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LuaConfig")
            .field("script", &self.script.name)
            .field("config", &self.config)
            .field("memory_bytes", &self.memory_bytes)
            .field("budget_ms", &self.budget_ms)
            .field("allow", &self.allow)
            .finish()
    }
}
