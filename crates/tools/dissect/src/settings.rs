//! Settings of an interface in a capture file. Carina writes them into the interface's description:
//! `carina KIND KEY=VALUE ...`, such as `carina normal dif=blue address=4 delimiting=none`.

use std::str::FromStr;

use carina_wire::dif::{Dialect, Syntax, Widths};

use super::SettingsError;

/// The settings of a DIF that are needed to read its PDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Layout and field widths of the PCI.
    pub syntax: Syntax,
    /// Whether user data begin with a delimiting header.
    pub is_delimited: bool,
    /// Whether the dialect is given, not guessed.
    pub is_certain: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            syntax: Syntax::default(),
            is_delimited: true,
            is_certain: false,
        }
    }
}

impl Settings {
    /// The settings of an interface by its description. A setting that the description lacks is
    /// taken from `fallback`; if Carina did not write the description, all are.
    ///
    /// # Errors
    /// The description contains an invalid value.
    pub fn of_interface(description: &str, fallback: Settings) -> Result<Settings, SettingsError> {
        let mut words = description.split_whitespace();
        if words.next() != Some("carina") {
            return Ok(fallback);
        }
        fallback.with(words.filter_map(|word| word.split_once('=')))
    }

    /// The settings of another dialect, with that dialect's usual field widths and delimiting.
    /// Returns the settings unchanged if the dialect is the same.
    pub fn in_dialect(mut self, dialect: Dialect) -> Settings {
        if dialect != self.syntax.dialect {
            self.syntax = Syntax {
                dialect,
                widths: dialect.widths(),
            };
            self.is_delimited = dialect == Dialect::Native;
        }
        self
    }

    /// Changes the settings that `pairs` names. Keys that do not concern PDUs are ignored.
    fn with<'a>(
        mut self,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Settings, SettingsError> {
        let mut pairs: Vec<_> = pairs.collect();
        // The dialect comes first: widths and delimiting are its usual ones unless they are given
        // too.
        if let Some(at) = pairs.iter().position(|(key, _)| *key == "dialect") {
            let (_, name) = pairs.remove(at);
            let dialect =
                Dialect::of_name(name).ok_or_else(|| SettingsError::Dialect(name.to_owned()))?;
            self = self.in_dialect(dialect);
            self.is_certain = true;
        }
        for (key, value) in pairs {
            if let Some(width) = width_of(&mut self.syntax.widths, key) {
                // Given widths imply the given dialect.
                self.is_certain = true;
                *width = value.parse().map_err(|_| SettingsError::Width {
                    key: key.to_owned(),
                    value: value.to_owned(),
                })?;
            } else if key == "delimiting" {
                self.is_delimited = match value {
                    "standard" => true,
                    "none" => false,
                    _ => return Err(SettingsError::Delimiting(value.to_owned())),
                };
            }
        }
        self.syntax.check().map_err(SettingsError::Widths)?;
        Ok(self)
    }
}

/// Parses pairs separated by commas: `address=4,seq=8`.
impl FromStr for Settings {
    type Err = SettingsError;

    fn from_str(text: &str) -> Result<Settings, SettingsError> {
        let mut pairs = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| SettingsError::NotAPair(word.to_owned()))?;
            if !matches!(key, "delimiting" | "dialect")
                && width_of(&mut Widths::default(), key).is_none()
            {
                return Err(SettingsError::UnknownKey(key.to_owned()));
            }
            pairs.push((key, value));
        }
        Settings::default().with(pairs.into_iter())
    }
}

fn width_of<'a>(widths: &'a mut Widths, key: &str) -> Option<&'a mut u8> {
    Some(match key {
        "address" => &mut widths.address,
        "cep" => &mut widths.cep,
        "qos" => &mut widths.qos,
        "seq" => &mut widths.seq,
        "ctrl_seq" => &mut widths.ctrl_seq,
        "length" => &mut widths.length,
        "rate" => &mut widths.rate,
        "frame" => &mut widths.frame,
        _ => return None,
    })
}
