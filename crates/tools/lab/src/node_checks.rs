//! Checks topologies with the checks of Carina's node.

use carina_api::control::DifCreate;
use carina_node::{Config, ConfigError, Node};
use carina_topology::NodeChecks;

/// Carina's node: accepts a topology if all of its nodes would start.
#[derive(Debug, Clone, Copy)]
pub struct CarinaNode;

impl NodeChecks for CarinaNode {
    fn check_node(&self, config: &str) -> Result<(), String> {
        let checked = Config::parse(config, None).and_then(|config| Node::check(&config));
        checked.map_err(|error| match error {
            // The line of this error is in a text that the user did not write, so it is left out.
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
