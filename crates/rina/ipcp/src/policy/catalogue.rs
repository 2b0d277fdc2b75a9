//! The catalogue: the policies of every component, and how to make one.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use super::{Params, PolicyError};
use crate::config::{DifConfig, PolicySpec};
use crate::security::Toolbox;

/// Description of a parameter of a policy: name, default and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter, as configuration files write it.
    pub name: &'static str,
    /// Value that the parameter has if the configuration does not set it.
    pub default: &'static str,
    /// Meaning of the parameter's value, with unit and range.
    pub help: &'static str,
}

/// Description of a policy: the component that it belongs to, its name, parameters and help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The component that the policy belongs to; see [`component`](super::component).
    pub component: &'static str,
    /// Name of the policy, unique in the component.
    pub name: &'static str,
    /// What the policy does, in one sentence.
    pub help: &'static str,
    /// The parameters that the policy accepts, each with its default value.
    pub params: Vec<Param>,
    /// The policy can be selected, and its parameters can be changed, while the DIF runs.
    pub is_live: bool,
}

/// Makes the descriptor of a policy that can be selected while the DIF runs.
pub fn live(
    component: &'static str,
    name: &'static str,
    help: &'static str,
    params: Vec<Param>,
) -> Descriptor {
    Descriptor {
        component,
        name,
        help,
        params,
        is_live: true,
    }
}

/// Makes the description of a parameter from its name, its default value and the help text.
pub fn param(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param {
        name,
        default,
        help,
    }
}

/// Policies by component and name. The first one registered for a component is its default.
#[derive(Clone, Default)]
pub struct Catalogue {
    components: BTreeMap<&'static str, Vec<Entry>>,
}

#[derive(Clone)]
struct Entry {
    descriptor: Descriptor,
    /// An [`Arc<Factory<T>>`], where `T` is the component's type of policy; `None` when the
    /// component makes the policy itself, by name.
    factory: Option<Arc<dyn Any + Send + Sync>>,
    /// Checks the values of the policy's parameters.
    check_params: Arc<CheckParamsFn>,
}

struct Factory<T>(Box<MakeFn<T>>);

type MakeFn<T> = dyn Fn(&Params) -> Result<T, PolicyError> + Send + Sync;

type CheckParamsFn = dyn Fn(&Params) -> Result<(), PolicyError> + Send + Sync;

impl Catalogue {
    /// A catalogue without policies, like [`Catalogue::default`](Default). [`Catalogue::standard`]
    /// has the standard policies.
    #[must_use]
    pub fn empty() -> Catalogue {
        Catalogue::default()
    }

    /// Adds a policy and the function that makes it. `T` is the component's type of policy, such as
    /// `Box<dyn Scheduler>`. Replaces a policy of the same component and name.
    pub fn register<T: 'static>(
        &mut self,
        descriptor: Descriptor,
        make: impl Fn(&Params) -> Result<T, PolicyError> + Send + Sync + 'static,
    ) {
        let factory = Arc::new(Factory::<T>(Box::new(make)));
        let twin = Arc::clone(&factory);
        self.put(Entry {
            descriptor,
            factory: Some(factory),
            check_params: Arc::new(move |params| (twin.0)(params).map(drop)),
        });
    }

    /// Adds a policy that its component makes itself, by name and parameters. `check_params` checks
    /// the values of the parameters.
    pub fn describe(
        &mut self,
        descriptor: Descriptor,
        check_params: impl Fn(&Params) -> Result<(), PolicyError> + Send + Sync + 'static,
    ) {
        self.put(Entry {
            descriptor,
            factory: None,
            check_params: Arc::new(check_params),
        });
    }

    /// Adds the policies of a toolbox. A change of one applies to N-1 flows that come up later.
    pub(crate) fn describe_toolbox(&mut self, toolbox: &dyn Toolbox) {
        let check_params = toolbox.params_check();
        for (component, name, help, params) in toolbox.list() {
            let params = params
                .into_iter()
                .map(|(name, default, help)| Param {
                    name,
                    default,
                    help,
                })
                .collect();
            let descriptor = Descriptor {
                component,
                name,
                help,
                params,
                is_live: false,
            };
            self.describe(descriptor, move |params| {
                let spec = PolicySpec {
                    name: name.to_string(),
                    params: params.values().clone(),
                };
                check_params(component, &spec).map_err(PolicyError::Refused)
            });
        }
    }

    /// Adds the policies of another catalogue. A policy replaces the one of the same component and
    /// name in its place. Policies with new names are appended. So the default policies do not
    /// change.
    pub fn extend(&mut self, other: Catalogue) {
        for entry in other.components.into_values().flatten() {
            self.put(entry);
        }
    }

    /// Keeps the policies for which `is_kept` returns true; `is_kept` may also change a descriptor.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&mut Descriptor) -> bool) {
        for entries in self.components.values_mut() {
            entries.retain_mut(|entry| is_kept(&mut entry.descriptor));
        }
        self.components.retain(|_, entries| !entries.is_empty());
    }

    /// Returns the names of the components that have policies, sorted.
    pub fn components(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.components.keys().copied()
    }

    /// Returns the descriptions of the policies of a component; the first is the default.
    pub fn policies(&self, component: &str) -> impl Iterator<Item = &Descriptor> + '_ {
        self.components
            .get(component)
            .into_iter()
            .flatten()
            .map(|entry| &entry.descriptor)
    }

    /// Finds the policy that `spec` names (the default if it names none), with all parameter
    /// values.
    ///
    /// # Errors
    /// The component, the policy or a parameter is unknown; the error lists the valid names.
    pub fn resolve(
        &self,
        component: &str,
        spec: &PolicySpec,
    ) -> Result<(&Descriptor, Params), PolicyError> {
        let entry = self.find(component, &spec.name)?;
        let descriptor = &entry.descriptor;
        let mut values: BTreeMap<String, String> = descriptor
            .params
            .iter()
            .map(|param| (param.name.to_string(), param.default.to_string()))
            .collect();
        for (name, value) in &spec.params {
            let Some(slot) = values.get_mut(name) else {
                return Err(PolicyError::UnknownParameter {
                    component: descriptor.component,
                    policy: descriptor.name,
                    parameter: name.clone(),
                    known: descriptor.params.iter().map(|param| param.name).collect(),
                });
            };
            slot.clone_from(value);
        }
        let params = Params::new(descriptor.component, descriptor.name, values);
        Ok((descriptor, params))
    }

    /// Makes the policy that `spec` names.
    ///
    /// # Errors
    /// Those of [`Catalogue::resolve`], and a parameter value that the policy rejects.
    pub fn make<T: 'static>(&self, component: &str, spec: &PolicySpec) -> Result<T, PolicyError> {
        let (descriptor, params) = self.resolve(component, spec)?;
        let entry = self.find(component, descriptor.name)?;
        let factory = entry
            .factory
            .as_ref()
            .and_then(|any| any.downcast_ref::<Factory<T>>())
            .ok_or(PolicyError::OtherProduct {
                component: descriptor.component,
                policy: descriptor.name,
            })?;
        (factory.0)(&params)
    }

    /// Makes the policy of `component` that a DIF's configuration selects.
    ///
    /// # Errors
    /// Those of [`Catalogue::make`].
    pub fn make_for<T: 'static>(
        &self,
        component: &str,
        config: &DifConfig,
    ) -> Result<T, PolicyError> {
        match config.policies.get(component) {
            Some(spec) => self.make(component, spec),
            None => self.make(component, &PolicySpec::default()),
        }
    }

    /// Checks the policy that `spec` names with its parameter values, and returns its descriptor.
    ///
    /// # Errors
    /// Those of [`Catalogue::resolve`], and a parameter value that the policy rejects.
    pub fn check_params(
        &self,
        component: &str,
        spec: &PolicySpec,
    ) -> Result<&Descriptor, PolicyError> {
        let (descriptor, params) = self.resolve(component, spec)?;
        (self.find(component, descriptor.name)?.check_params)(&params)?;
        Ok(descriptor)
    }

    /// Checks all policies of a configuration.
    ///
    /// # Errors
    /// The first policy that [`Catalogue::check_params`] rejects.
    pub fn check(&self, config: &DifConfig) -> Result<(), PolicyError> {
        for (component, spec) in &config.policies {
            self.check_params(component, spec)?;
        }
        Ok(())
    }

    fn put(&mut self, entry: Entry) {
        let entries = self
            .components
            .entry(entry.descriptor.component)
            .or_default();
        let name = entry.descriptor.name;
        match entries.iter_mut().find(|old| old.descriptor.name == name) {
            Some(old) => *old = entry,
            None => entries.push(entry),
        }
    }

    fn find(&self, component: &str, name: &str) -> Result<&Entry, PolicyError> {
        let Some((component, entries)) = self.components.get_key_value(component) else {
            return Err(PolicyError::UnknownComponent {
                component: component.to_string(),
                known: self.components().collect(),
            });
        };
        entries
            .iter()
            .find(|entry| name.is_empty() || entry.descriptor.name == name)
            .ok_or_else(|| PolicyError::UnknownPolicy {
                component,
                policy: name.to_string(),
                known: entries.iter().map(|entry| entry.descriptor.name).collect(),
            })
    }
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.components.iter().map(|(component, entries)| {
                let names: Vec<_> = entries.iter().map(|entry| entry.descriptor.name).collect();
                (component, names)
            }))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn catalogue() -> Catalogue {
        let mut catalogue = Catalogue::empty();
        for name in ["one", "two"] {
            catalogue.register::<u64>(
                Descriptor {
                    component: "rmt-queue",
                    name,
                    help: "",
                    params: vec![Param {
                        name: "limit",
                        default: "7",
                        help: "",
                    }],
                    is_live: true,
                },
                |params| params.uint("limit", 1, 10),
            );
        }
        catalogue
    }

    fn spec(name: &str, params: &[(&str, &str)]) -> PolicySpec {
        PolicySpec {
            name: name.into(),
            params: params
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        }
    }

    #[test]
    fn first_policy_and_default_parameters_are_the_defaults() {
        let catalogue = catalogue();
        assert_eq!(catalogue.make::<u64>("rmt-queue", &spec("", &[])), Ok(7));
        let two = spec("two", &[("limit", "9")]);
        assert_eq!(catalogue.make::<u64>("rmt-queue", &two), Ok(9));
        assert_eq!(
            catalogue
                .resolve("rmt-queue", &two)
                .unwrap()
                .1
                .text("limit"),
            "9"
        );
    }

    #[test]
    fn values_are_judged_for_policies_of_other_crates_too() {
        let mut catalogue = catalogue();
        let [descriptor, _] = ["one", "two"].map(|name| {
            let mut policies = catalogue.policies("rmt-queue");
            policies.find(|policy| policy.name == name).unwrap().clone()
        });
        let made_elsewhere = Descriptor {
            component: "routing",
            ..descriptor
        };
        catalogue.describe(made_elsewhere, |params| match params.text("limit") {
            "8" => Err(PolicyError::Refused("not 8".into())),
            _ => Ok(()),
        });
        let policies = |component: &str, limit| DifConfig {
            policies: BTreeMap::from([(component.into(), spec("one", &[("limit", limit)]))]),
            ..DifConfig::default()
        };
        assert_eq!(catalogue.check(&policies("rmt-queue", "8")), Ok(()));
        let error = catalogue.check(&policies("rmt-queue", "x")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("parameter limit is \"x\""), "{error}");
        assert_eq!(catalogue.check(&policies("routing", "x")), Ok(()));
        let error = catalogue.check(&policies("routing", "8")).unwrap_err();
        assert_eq!(error.to_string(), "not 8");
    }

    #[test]
    fn errors_list_the_known_names() {
        let catalogue = catalogue();
        let error = |component, spec: &PolicySpec| {
            let made = catalogue.make::<u64>(component, spec);
            made.unwrap_err().to_string()
        };
        assert_eq!(
            error("rmt", &spec("", &[])),
            "no component is called \"rmt\"; there are: rmt-queue"
        );
        assert_eq!(
            error("rmt-queue", &spec("three", &[])),
            "rmt-queue: no policy is called \"three\"; there are: one, two"
        );
        assert_eq!(
            error("rmt-queue", &spec("two", &[("size", "1")])),
            "rmt-queue: policy two has no parameter \"size\"; it has: limit"
        );
        assert_eq!(
            error("rmt-queue", &spec("two", &[("limit", "11")])),
            "rmt-queue: policy two: parameter limit is \"11\"; it must be a whole number from 1 to 10"
        );
        let other = catalogue.make::<u32>("rmt-queue", &spec("one", &[]));
        let error = other.unwrap_err().to_string();
        assert!(error.contains("registered with another type"), "{error}");
    }
}
