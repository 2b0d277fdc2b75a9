//! Runs code on a thread in a network namespace.

use carina_namespaces::namespace_file;
use carina_sys::NetworkNamespace;

use crate::error::{Attempt, Result};

/// Calls `act` on a thread in the namespace with this name.
pub(crate) fn within<T: Send>(name: &str, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = namespace_file(name);
    let enter = || {
        let namespace = NetworkNamespace::open(&path)?;
        namespace.enter()
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter().attempt(format!("entering {}", path.display()))?;
            act()
        });
        thread.join().expect("what is done there does not panic")
    })
}
