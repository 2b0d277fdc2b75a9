//! The settings that `carina wrap` passes to the programs that it starts, in one environment
//! variable.

use std::net::SocketAddr;
use std::path::PathBuf;

use carina_api::NameError;
use serde::{Deserialize, Serialize};

use crate::name_table::NameTable;
use crate::rule::{Address, Decision, Direction, Rule};

/// The settings of wrapped programs: rules, and where the node and the name table are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The rules; the first rule that fits decides.
    pub rules: Vec<Rule>,
    /// Path of the node's socket for applications, `ipc.sock`.
    pub node: PathBuf,
    /// Path of the file with the name table.
    pub names: PathBuf,
    /// The name of this host in DIFs, from which connections of its programs come.
    pub host: String,
    /// Path of `carina`, which supervises static programs that a dynamic program starts. `None`:
    /// they are not wrapped.
    pub carina: Option<PathBuf>,
}

impl Settings {
    /// Decodes the value of [`VARIABLE`].
    ///
    /// # Errors
    /// The text is not a value that `carina wrap` writes.
    pub fn decode(text: &str) -> Result<Settings, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Encodes the settings as the value of [`VARIABLE`].
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub fn encode(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Returns the name table in the file `names`.
    pub fn table(&self) -> NameTable {
        NameTable::new(&self.names)
    }

    /// Returns the target of a socket with this address, by the first rule that fits.
    ///
    /// # Errors
    /// The name of the application would be too long.
    pub fn decide(&self, direction: Direction, socket: SocketAddr) -> Result<Decision, NameError> {
        // Without a readable table there are no names; rules about addresses still apply.
        let host = self.table().name(socket.ip()).ok().flatten();
        let address = Address { host, socket };
        let rule = self
            .rules
            .iter()
            .find(|rule| rule.matches(direction, &address));
        match rule {
            Some(rule) => rule.decide(&address),
            None => Ok(Decision::Kernel),
        }
    }

    /// Whether a rule makes flows of connections to a host with this name.
    pub fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.');
        self.rules.iter().any(|rule| rule.names(host))
    }
}

/// Name of the environment variable with the settings.
pub const VARIABLE: &str = "CARINA_WRAP";

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &std::path::Path) -> Settings {
        let rules = [
            "*:22 -> kernel",
            "*.vm -> dif n",
            "listen 0.0.0.0 -> dif as me:{port}",
        ];
        Settings {
            rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
            node: "/run/carina/ipc.sock".into(),
            names: directory.join("names"),
            host: "me".into(),
            carina: Some("/usr/bin/carina".into()),
        }
    }

    #[test]
    fn settings_pass_through_the_environment() {
        let settings = settings("/tmp".as_ref());
        let text = settings.encode().unwrap();
        assert_eq!(Settings::decode(&text).unwrap(), settings);
        assert!(Settings::decode(&text.replace("*.vm -> dif n", "*.vm")).is_err());
        assert!(Settings::decode("{}").is_err());
    }

    #[test]
    fn first_rule_that_fits_decides_by_name_of_the_address() {
        let directory = tempfile::tempdir().unwrap();
        let settings = settings(directory.path());
        let number = settings.table().number("web.vm").unwrap();
        let at = |port| SocketAddr::new(crate::name_table::address_v4(number).into(), port);
        let name = |decision| match decision {
            Decision::Flow { name, .. } => name.to_string(),
            other => format!("{other:?}"),
        };
        let of = |direction, at| name(settings.decide(direction, at).unwrap());
        assert_eq!(of(Direction::Connect, at(80)), "web.vm:80");
        assert_eq!(of(Direction::Connect, at(22)), "Kernel");
        assert_eq!(
            of(Direction::Connect, "10.0.0.1:80".parse().unwrap()),
            "Kernel"
        );
        assert_eq!(
            of(Direction::Listen, "0.0.0.0:80".parse().unwrap()),
            "me:80"
        );
        assert!(settings.names("web.vm.") && !settings.names("web.example"));
    }
}
