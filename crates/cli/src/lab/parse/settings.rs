//! Lines `policy`, `set` and `cube`: the configuration of a DIF.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Draft, Set, Setting, form};
use crate::lab::topology::Wrong;
use crate::lab::words::Word;

impl Draft {
    pub(super) fn policy(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, rest @ ..] = words else {
            return Err(form(verb));
        };
        // rlite's form names the systems first; ours, as a DIF has one policy, does not.
        let is_list = |word: &Word| {
            word.text == "*"
                || word
                    .text
                    .split(',')
                    .all(|name| self.systems.iter().any(|s| s.name == name))
        };
        let rest = match rest {
            [nodes, rest @ ..] if rest.len() >= 2 && is_list(nodes) => {
                if nodes.text != "*" {
                    self.notes.push(format!(
                        "line {}: a policy holds for the whole DIF, not for {} only",
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
                return Err(word.wrong(format!("`{}` is no PARAMETER=VALUE", word.text)));
            };
            params.insert(key.to_owned(), value.text);
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

    pub(super) fn set(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, options @ ..] = words else {
            return Err(form(verb));
        };
        if options.is_empty() {
            return Err(form(verb));
        }
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.wrong(format!("`{}` is no KEY=VALUE", word.text)));
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

    pub(super) fn cube(&mut self, verb: &Word, words: &[Word]) -> Result<(), Wrong> {
        let [dif, name, options @ ..] = words else {
            return Err(form(verb));
        };
        let mut cube = Map::new();
        cube.insert("name".to_owned(), Value::from(name.text.clone()));
        for word in options {
            let Some((key, value)) = word.pair() else {
                return Err(word.wrong(format!("`{}` is no KEY=VALUE", word.text)));
            };
            let path: Vec<String> = key.split('.').map(str::to_owned).collect();
            put(&mut cube, &path, plain(&value.text)).map_err(|what| word.wrong(what))?;
        }
        self.settings.push(Setting {
            dif: dif.clone(),
            at: name.at,
            what: Set::Cube(cube),
        });
        Ok(())
    }
}

/// A value as JSON has it: a number or a truth value where it looks like one, else text.
fn plain(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| Value::from(text), Value::from),
    }
}

/// Puts a value into nested tables.
///
/// # Errors
/// Something on the way is no table, or the value is there.
pub fn put(table: &mut Map<String, Value>, path: &[String], value: Value) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else {
        return Ok(());
    };
    if rest.is_empty() {
        return match table.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(format!("`{key}` is given twice")),
        };
    }
    let inner = table
        .entry(key.clone())
        .or_insert_with(|| Value::Object(Map::new()));
    match inner {
        Value::Object(inner) => put(inner, rest, value),
        _ => Err(format!("`{key}` has no keys inside")),
    }
}
