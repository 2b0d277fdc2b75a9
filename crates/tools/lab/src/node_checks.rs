//! The checks of Carina's node, for topologies.

use carina_api::control::DifCreate;
use carina_node::{Config, ConfigError, Node};
use carina_topology::NodeChecks;

/// Checks a topology by what Carina's node accepts.
#[derive(Debug, Clone, Copy)]
pub struct CarinaNode;

impl NodeChecks for CarinaNode {
    fn check_node(&self, config: &str) -> Result<(), String> {
        let checked = Config::parse(config, None).and_then(|config| Node::check(&config));
        checked.map_err(|error| match error {
            // The line is one of a text that the user did not write.
            ConfigError::Meaning { what, .. } => what,
            error => error.to_string(),
        })
    }

    fn check_member(&self, create: DifCreate, system: &str) -> Result<(), String> {
        carina_node::check_member(create, system).map_err(|error| error.to_string())
    }

    fn check_credentials(&self, auth: &str) -> Result<(), String> {
        carina_node::check_auth(auth).map_err(|error| error.to_string())
    }
}
