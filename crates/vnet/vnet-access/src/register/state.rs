//! The file of a register.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{RegisterError, Session};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// UDP port on which the access point listens; 0 if the access point was retired.
    pub(super) port: u16,
    #[serde(default)]
    pub(super) users: BTreeMap<String, UserState>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UserState {
    /// How often the user's tokens were revoked.
    pub(super) round: u64,
    /// Tokens that were used, with the time when each expires.
    #[serde(default)]
    pub(super) used: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Session>,
}

impl State {
    /// Reads the state from a file; `None` if the file does not exist.
    pub(super) fn read(path: &Path) -> Result<Option<State>, RegisterError> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| RegisterError::File {
                path: path.to_owned(),
                source,
            })?,
        };
        let state = serde_json::from_slice(&text);
        state.map(Some).map_err(|source| RegisterError::Json {
            path: path.to_owned(),
            source,
        })
    }

    pub(super) fn keep(&self, path: &Path) -> Result<(), RegisterError> {
        let part = path.with_extension("part");
        let text = serde_json::to_vec_pretty(self).map_err(|source| RegisterError::Json {
            path: path.to_owned(),
            source,
        })?;
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, path))
            .map_err(|source| RegisterError::File {
                path: path.to_owned(),
                source,
            })
    }
}
