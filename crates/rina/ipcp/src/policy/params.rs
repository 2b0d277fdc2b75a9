//! The parameter values of one policy: the configured values and, for the rest, the defaults.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use super::{PolicyError, ValidValues};

/// The parameters of a policy, each with a value: the one given or the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params {
    component: &'static str,
    policy: &'static str,
    values: BTreeMap<String, String>,
}

impl Params {
    /// Collects the parameter values of `policy`, a policy of `component`. `values` are the
    /// configured values and the defaults of the rest.
    #[must_use]
    pub fn new(
        component: &'static str,
        policy: &'static str,
        values: BTreeMap<String, String>,
    ) -> Params {
        Params {
            component,
            policy,
            values,
        }
    }

    /// Returns the name of the policy that these parameters belong to.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the values of all parameters, by parameter name.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Returns the value of parameter `name` as text; empty when the policy has no such parameter.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// Returns the value of parameter `name` as a whole number between `min` and `max`.
    ///
    /// # Errors
    /// The value is not a number or is out of range; the message names component, policy, parameter
    /// and range.
    pub fn uint(&self, name: &str, min: u64, max: u64) -> Result<u64, PolicyError> {
        match self.text(name).parse::<u64>() {
            Ok(value) if (min..=max).contains(&value) => Ok(value),
            _ => Err(self.wrong(name, ValidValues::Uint { min, max })),
        }
    }

    /// Returns the value of parameter `name` as `true` or `false`.
    ///
    /// # Errors
    /// The value is neither `true` nor `false`.
    pub fn flag(&self, name: &str) -> Result<bool, PolicyError> {
        self.text(name)
            .parse::<bool>()
            .map_err(|_| self.wrong(name, ValidValues::Flag))
    }

    /// The parameter as the index of its value in `words`.
    ///
    /// # Errors
    /// The value is not one of `words`.
    pub(crate) fn one_of(&self, name: &str, words: &[&str]) -> Result<usize, PolicyError> {
        let value = self.text(name);
        words.iter().position(|word| *word == value).ok_or_else(|| {
            let words = words.iter().map(ToString::to_string).collect();
            self.wrong(name, ValidValues::OneOf(words))
        })
    }

    fn wrong(&self, name: &str, wanted: ValidValues) -> PolicyError {
        PolicyError::Value {
            component: self.component,
            policy: self.policy,
            parameter: name.to_string(),
            value: self.text(name).to_string(),
            wanted,
        }
    }
}
