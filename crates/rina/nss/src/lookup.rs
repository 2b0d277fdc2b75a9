//! What a name or an address stands for, by the node and the table of names of this process's user.

use std::ffi::CString;
use std::net::IpAddr;
use std::time::Duration;

use carina_api::control::{Client, ClientError};
use carina_api::paths::RunDir;
use carina_wrap::name_table::{NameTable, NameTableError, number_of};
use carina_wrap::zones::{Registered, Zone};

/// The node and the name table in which this process looks names up.
#[derive(Debug)]
pub(crate) struct Lookup {
    /// The run directory of the node, from the environment variables. `None` in a set-user-ID
    /// program: another user may have set the variables, so the look-up finds nothing.
    run: Option<RunDir>,
}

/// The result of looking up a host name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Addresses([IpAddr; 2]),
    /// There is no such name.
    Nothing,
    /// No node answers, or the table cannot be used.
    Unavailable,
}

impl Lookup {
    /// Makes the look-up for this process, from its environment. A set-user-ID program has an
    /// environment of another user, so it finds nothing.
    pub(crate) fn of_process() -> Lookup {
        // SAFETY: the call reads a value that the kernel gave the process.
        let is_secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
        Lookup {
            run: (!is_secure).then(RunDir::from_env),
        }
    }

    #[cfg(test)]
    pub(crate) fn in_directory(path: &std::path::Path) -> Lookup {
        let run = Some(RunDir::new(path));
        Lookup { run }
    }

    /// Looks up the addresses of a host name.
    pub(crate) fn addresses(&self, name: &str) -> Found {
        let host = name.trim_end_matches('.').to_ascii_lowercase();
        let (Ok(zone), Some(run)) = (Zone::new(DOMAIN), &self.run) else {
            return Found::Nothing;
        };
        if !zone.contains(&host) {
            return Found::Nothing;
        }
        let node = Client::new(run.control_sock()).with_answer_limit(NODE_LIMIT);
        let registered = match Registered::read(&node) {
            Ok(registered) => registered,
            // Another user's node: only a request for a flow tells whether there is such a name.
            Err(error) if is_denied(&error) => Registered::default(),
            Err(_) => return Found::Unavailable,
        };
        if !registered.may_have(&zone, &host) {
            return Found::Nothing;
        }
        let is_registered = registered.has(&zone, &host);
        let table = self.table(run);
        match table.and_then(|table| table.addresses(&host, is_registered)) {
            Ok(addresses) => Found::Addresses(addresses),
            Err(_) => Found::Unavailable,
        }
    }

    /// Looks up the host name for which the name table has this address; `None` for every other
    /// address.
    pub(crate) fn name(&self, address: IpAddr) -> Result<Option<CString>, NameTableError> {
        let (Some(_), Some(run)) = (number_of(address), &self.run) else {
            return Ok(None);
        };
        let name = self.table(run)?.name(address)?;
        Ok(name.and_then(|name| CString::new(name).ok()))
    }

    fn table(&self, run: &RunDir) -> Result<NameTable, NameTableError> {
        NameTable::of_user(run.path())
    }
}

fn is_denied(error: &ClientError) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            return true;
        }
        source = error.source();
    }
    false
}

/// The domain whose names are applications.
const DOMAIN: &str = "dif.internal";

/// Longest time that the node may take for one answer: the program waits.
const NODE_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_domains_need_no_node() {
        let lookup = Lookup::in_directory("/nowhere".as_ref());
        assert_eq!(lookup.addresses("example.org"), Found::Nothing);
        assert_eq!(lookup.addresses("xdif.internal"), Found::Nothing);
        assert_eq!(lookup.addresses("web.dif.internal"), Found::Unavailable);
        assert_eq!(lookup.name("10.0.0.1".parse().unwrap()).unwrap(), None);
    }

    #[test]
    fn addresses_of_the_table_have_names() {
        let directory = tempfile::tempdir().unwrap();
        let table = NameTable::of_user(directory.path()).unwrap();
        let [four, six] = table.addresses("web.dif.internal", true).unwrap();
        let lookup = Lookup::in_directory(directory.path());
        for address in [four, six] {
            let name = lookup.name(address).unwrap().unwrap();
            assert_eq!(name.to_str(), Ok("web.dif.internal"));
        }
        assert_eq!(lookup.name("198.18.0.9".parse().unwrap()).unwrap(), None);
    }
}
