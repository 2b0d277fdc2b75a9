//! Parses lines `policy`, `set` and `cube`: the configuration of a DIF.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Draft, Set, Setting, form};
use crate::TopologyError;
use crate::token::Token;

impl Draft {
    pub(super) fn policy(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [dif, rest @ ..] = words else {
            return Err(form(verb));
        };
        // In rlite's syntax the line names systems first. In Carina a policy applies to the whole
        // DIF.
        let is_system = |name: &str| self.systems.iter().any(|system| system.name == name);
        let is_list =
            |word: &Token| word.text == "*" || word.text.contains(',') || is_system(&word.text);
        let rest = match rest {
            [nodes, rest @ ..] if rest.len() >= 2 && is_list(nodes) => {
                if nodes.text != "*" {
                    if let Some(name) = nodes.text.split(',').find(|name| !is_system(name)) {
                        return Err(nodes.error(format!(
                            "no line above defines a system `{name}`; `policy {} * ...` applies \
                             to all systems",
                            dif.text
                        )));
                    }
                    self.notes.push(format!(
                        "line {}: a policy applies to the whole DIF, not to {} only",
                        nodes.at.line, nodes.text
                    ));
                }
                rest
            }
            rest => rest,
        };
        let [component, policy, options @ ..] = rest else {
            return Err(form(verb));
        };
        let mut params = BTreeMap::new();
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.error(format!("`{}` is not PARAMETER=VALUE", word.text)));
            };
            params.insert(key.to_owned(), self.with_ipcps(&dif.text, &value.text));
        }
        self.settings.push(Setting {
            dif: dif.clone(),
            at: component.at,
            what: Set::Policy {
                component: component.text.clone(),
                name: policy.text.clone(),
                params,
            },
        });
        Ok(())
    }

    /// Replaces rlite's `$SYSTEM` in a value by the name of that system's member.
    fn with_ipcps(&self, dif: &str, value: &str) -> String {
        let mut names: Vec<&str> = self.systems.iter().map(|s| s.name.as_str()).collect();
        // Longer names come first, so that a name that begins with another one is found.
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        names.iter().fold(value.to_owned(), |text, name| {
            text.replace(&format!("${name}"), &format!("{dif}.{name}"))
        })
    }

    pub(super) fn set(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [dif, options @ ..] = words else {
            return Err(form(verb));
        };
        if options.is_empty() {
            return Err(form(verb));
        }
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.error(format!("`{}` is no KEY=VALUE", word.text)));
            };
            let what = match key {
                "auth" => Set::Auth(value.text),
                _ => Set::Key {
                    path: key.split('.').map(str::to_owned).collect(),
                    value: plain(&value.text),
                },
            };
            let (dif, at) = (dif.clone(), word.at);
            self.settings.push(Setting { dif, at, what });
        }
        Ok(())
    }

    pub(super) fn cube(&mut self, verb: &Token, words: &[Token]) -> Result<(), TopologyError> {
        let [dif, name, options @ ..] = words else {
            return Err(form(verb));
        };
        let mut cube = Map::new();
        cube.insert("name".to_owned(), Value::from(name.text.clone()));
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.error(format!("`{}` is no KEY=VALUE", word.text)));
            };
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            put(&mut cube, &path, plain(&value.text)).map_err(|what| word.error(what))?;
        }
        self.settings.push(Setting {
            dif: dif.clone(),
            at: name.at,
            what: Set::Cube(cube),
        });
        Ok(())
    }
}

/// A JSON value: a number or boolean if the text is one, otherwise a string.
fn plain(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| Value::from(text), Value::from),
    }
}

/// Why a value cannot be set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingError {
    /// An earlier line has set it.
    #[error("`{0}` is given twice")]
    Twice(String),
    /// The path leads through a value that is not a table.
    #[error("`{0}` is a single value and has no keys")]
    NotATable(String),
    /// Lines of another kind (`cube`, `policy`) configure it.
    #[error("`{0}` cannot be set by a line `set`; use lines `cube` and `policy`")]
    HasOwnStatements(&'static str),
    /// The configuration of a DIF has no such key, or the value does not fit.
    #[error(transparent)]
    Config(#[from] serde_json::Error),
}

/// Sets a value at a path in nested tables.
///
/// # Errors
/// A part of the path is not a table, or the value is set already.
pub(crate) fn put(
    table: &mut Map<String, Value>,
    path: &[String],
    value: Value,
) -> Result<(), SettingError> {
    let Some((key, rest)) = path.split_first() else {
        return Ok(());
    };
    if rest.is_empty() {
        return match table.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(SettingError::Twice(key.clone())),
        };
    }
    let inner = table
        .entry(key.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    match inner {
        Value::Object(inner) => put(inner, rest, value),
        _ => Err(SettingError::NotATable(key.clone())),
    }
}
