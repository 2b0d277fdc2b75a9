//! Translates configurations of rlite and IRATI into a configuration of Carina, and networks of
//! other tools into documents of virtual networks ([`vnets`]).
//!
//! A reader takes a file line by line or key by key and makes a [`Draft`]: the settings of the
//! node, and a [`Note`] for everything that has no equivalent in Carina. [`Draft::to_toml`] writes
//! the draft as a configuration, and passes it to a check by the caller, which can use the node's
//! own parser.
//!
//! | reader | input |
//! |---|---|
//! | [`rlite::read`] | scripts of `rlite-ctl`, such as `/etc/rina/initscript` |
//! | [`irati::read`] | `ipcmanager.conf` of IRATI's IPC Manager, and its DIF templates |
#![forbid(unsafe_code)]

mod error;
pub mod irati;
mod json;
pub mod rlite;
mod toml;
pub mod vnets;

use std::fmt::Display;

use carina_api::control::{Dialect, DifRole, IpcpCreate};
use carina_text::spelling::nearest;
use serde_json::{Map, Value};

pub use crate::error::{ImportError, JsonError, YamlError};

use crate::error::Reason;

/// A setting of the imported file that was not translated, or only in part.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// Name of the imported file that has the setting.
    pub file: String,
    /// Number of the line with the setting, counted from 1.
    pub line: usize,
    /// The setting that was not translated.
    pub what: String,
    /// Why the setting was not translated, or how to do it.
    pub why: String,
}

/// A member of a normal DIF in the imported configuration.
#[derive(Debug, Clone)]
pub struct Member {
    /// Name of the IPCP that is this member.
    pub ipcp: String,
    /// Name of the DIF that the member joins or creates.
    pub dif: String,
    /// Dialect of the protocols that all members of the DIF use.
    pub dialect: Dialect,
    /// Names of the N-1 DIFs over which the member reaches its neighbours.
    pub over: Vec<String>,
    /// Whether the member is the first of its DIF or joins; `None` until it is known.
    pub role: Option<DifRole>,
    /// Name of the member to enroll with; `None` for any member that answers.
    pub via: Option<String>,
    /// Settings of the DIF, as in `docs/reference/configuration.md`.
    pub config: Map<String, Value>,
    /// Line of the file that creates the member.
    pub line: usize,
}

/// A configuration that a reader is building from an imported file.
#[derive(Debug, Default)]
pub struct Draft {
    /// Name of the node, if the file gives one.
    pub node: Option<String>,
    /// The shim IPCPs.
    pub shims: Vec<IpcpCreate>,
    /// The members of normal DIFs.
    pub members: Vec<Member>,
    /// What was not translated.
    pub notes: Vec<Note>,
}

impl Draft {
    /// Adds a note about something that is not translated.
    pub fn note(
        &mut self,
        file: &str,
        line: usize,
        what: impl Into<String>,
        why: impl Into<String>,
    ) {
        self.notes.push(Note {
            file: file.to_owned(),
            line,
            what: what.into(),
            why: why.into(),
        });
    }

    /// The configuration as TOML. `check` receives that text, and checks it like a node that starts
    /// with it.
    ///
    /// # Errors
    /// `check` refuses the configuration.
    pub fn to_toml<E: Display>(
        &self,
        check: impl FnOnce(&str) -> Result<(), E>,
    ) -> Result<String, ImportError> {
        let toml = toml::write(self);
        match check(&toml) {
            Ok(()) => Ok(toml),
            Err(error) => Err(ImportError::Configuration {
                reason: error.to_string(),
                toml,
            }),
        }
    }
}

impl Member {
    /// A member without N-1 DIFs, role and settings.
    pub fn new(ipcp: String, dif: String, dialect: Dialect, line: usize) -> Member {
        Member {
            ipcp,
            dif,
            dialect,
            over: Vec::new(),
            role: None,
            via: None,
            config: Map::new(),
            line,
        }
    }

    /// Adds an N-1 DIF, unless the member has it already.
    pub fn stand_on(&mut self, dif: &str) {
        if !self.over.iter().any(|known| known == dif) {
            self.over.push(dif.to_owned());
        }
    }

    /// Adds an N-1 DIF. Refuses the member's own DIF.
    fn try_stand_on(&mut self, dif: &str) -> Result<(), Reason> {
        if self.dif == dif {
            return Err(format!("DIF {dif} cannot lie over itself").into());
        }
        self.stand_on(dif);
        Ok(())
    }

    /// The table at a path of the member's configuration, created if it does not exist.
    pub fn table(&mut self, path: &[&str]) -> &mut Map<String, Value> {
        let mut table = &mut self.config;
        for key in path {
            let inner = table
                .entry((*key).to_owned())
                .or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            table = inner.as_object_mut().expect("it was made one just now");
        }
        table
    }
}

/// Checks the name of a network interface.
///
/// # Errors
/// Linux allows no interface of this name.
fn interface(text: &str) -> Result<String, Reason> {
    let is_odd = |c: char| c.is_control() || c.is_whitespace() || c == '/' || c == ':';
    let is_sound = (1..16).contains(&text.len()) && !text.contains(is_odd);
    if is_sound && text != "." && text != ".." {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not the name of a network interface: give 1 to 15 bytes without spaces, \
             `/` and `:`"
        )
        .into())
    }
}

/// The text of a note about an unknown key: names the most similar key, or else all keys of the
/// place. `what` is the word for such keys.
fn no_such_key(place: &str, what: &str, key: &str, known: &[&str]) -> String {
    match nearest(key, known.iter().copied()) {
        None if known.is_empty() => format!("{place} has no {what}"),
        Some(meant) => format!("{place} has no {what} {key}; was `{meant}` meant?"),
        None => format!("{place} has no {what} {key}; it has {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_every_form;
#[cfg(test)]
mod tests_every_form_irati;
