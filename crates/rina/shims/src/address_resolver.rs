//! Resolves addresses of applications for shims over IP: by a table, then by `/etc/hosts` and DNS.
//!
//! A look-up may take seconds, so a separate thread does it. Results arrive in a mailbox that wakes
//! the data plane.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use carina_api::{AppName, PortId};
use carina_dataplane::Mailbox;
use carina_netdev::{address_of_host, host_of_address};

use crate::error::AddressError;

/// A request for a look-up.
enum Query {
    /// The address of an application, for the flow with this port-id.
    Address(PortId, AppName),
    /// The application at an IP address.
    Name(IpAddr),
}

/// The result of a look-up.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The address of an application, or the reason why it is unknown.
    Address(PortId, Result<SocketAddr, AddressError>),
    /// The application at an IP address; named after the address if it is unknown.
    Name(IpAddr, AppName),
}

/// Looks up addresses and names in its own thread. After a drop, the thread ends when its current
/// look-up ends.
pub(crate) struct AddressResolver {
    queries: Sender<Query>,
    answers: Mailbox<Answer>,
}

impl AddressResolver {
    /// Starts the resolver. `table` maps applications to `HOST` or `HOST:PORT`; `port` is the
    /// default port.
    ///
    /// # Errors
    /// The system has no free thread or descriptor.
    pub(crate) fn open(
        table: Vec<(AppName, String)>,
        port: u16,
    ) -> std::io::Result<AddressResolver> {
        let (queries, received) = channel();
        let answers = Mailbox::new()?;
        let worker = Worker {
            table,
            port,
            received,
            answers: answers.clone(),
        };
        std::thread::Builder::new()
            .name("address-resolver".to_owned())
            .spawn(move || worker.run())?;
        Ok(AddressResolver { queries, answers })
    }

    /// Starts a look-up of an application's address, for the flow `port`.
    pub(crate) fn resolve(&self, port: PortId, name: &AppName) {
        // Cannot fail: the thread runs as long as this end of the channel exists.
        let _ = self.queries.send(Query::Address(port, name.clone()));
    }

    /// Starts a look-up of the application at an IP address.
    pub(crate) fn reverse(&self, ip: IpAddr) {
        let _ = self.queries.send(Query::Name(ip));
    }

    /// Returns the next result; `None` if no look-up has ended since the last call.
    pub(crate) fn answer(&self) -> Option<Answer> {
        self.answers.take()
    }
}

impl AsFd for AddressResolver {
    /// The descriptor is readable while there may be results.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.answers.as_fd()
    }
}

struct Worker {
    table: Vec<(AppName, String)>,
    port: u16,
    received: Receiver<Query>,
    answers: Mailbox<Answer>,
}

impl Worker {
    fn run(self) {
        while let Ok(query) = self.received.recv() {
            self.answers.put(match query {
                Query::Address(port, name) => Answer::Address(port, self.find(&name)),
                Query::Name(ip) => Answer::Name(ip, self.name_of(ip)),
            });
        }
    }

    fn find(&self, name: &AppName) -> Result<SocketAddr, AddressError> {
        let row = self.table.iter().find(|(known, _)| known == name);
        match row {
            Some((_, host)) => {
                address_of_host(host, self.port).map_err(|source| AddressError::Table {
                    name: name.to_string(),
                    host: host.clone(),
                    source,
                })
            }
            None => {
                address_of_host(name.as_str(), self.port).map_err(|source| AddressError::Unknown {
                    name: name.to_string(),
                    source,
                })
            }
        }
    }

    fn name_of(&self, ip: IpAddr) -> AppName {
        let is_at_ip =
            |host: &str| address_of_host(host, self.port).is_ok_and(|address| address.ip() == ip);
        let row = self.table.iter().find(|(_, host)| is_at_ip(host));
        row.map(|(name, _)| name.clone())
            .or_else(|| AppName::new(host_of_address(ip)?).ok())
            .unwrap_or_else(|| AppName::new(ip.to_string()).expect("digits, dots and colons"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_answer(resolver: &AddressResolver) -> Answer {
        // The system queries a name server that does not answer several times.
        for _ in 0..120_000 {
            if let Some(answer) = resolver.answer() {
                return answer;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("no answer for two minutes");
    }

    fn address(answer: Answer) -> (PortId, Result<SocketAddr, String>) {
        match answer {
            Answer::Address(port, found) => (port, found.map_err(|error| error.to_string())),
            Answer::Name(..) => panic!("a name for an address: {answer:?}"),
        }
    }

    #[test]
    fn table_answers_both_ways_and_unknown_host_is_named() {
        let name = |text: &str| AppName::new(text).unwrap();
        let table = vec![
            (name("b.ipcp"), "192.0.2.7".to_owned()),
            (name("c.ipcp"), "192.0.2.8:99".to_owned()),
        ];
        let resolver = AddressResolver::open(table, 3359).unwrap();
        resolver.resolve(PortId(1), &name("b.ipcp"));
        resolver.resolve(PortId(2), &name("c.ipcp"));
        resolver.reverse("192.0.2.8".parse().unwrap());
        resolver.resolve(PortId(3), &name("no such host"));
        let expected = Ok("192.0.2.7:3359".parse().unwrap());
        assert_eq!(address(wait_for_answer(&resolver)), (PortId(1), expected));
        let expected = Ok("192.0.2.8:99".parse().unwrap());
        assert_eq!(address(wait_for_answer(&resolver)), (PortId(2), expected));
        let Answer::Name(ip, found) = wait_for_answer(&resolver) else {
            panic!("no name");
        };
        let expected = ("192.0.2.8".parse().unwrap(), name("c.ipcp"));
        assert_eq!((ip, found), expected);
        let (PortId(3), Err(reason)) = address(wait_for_answer(&resolver)) else {
            panic!("an address for no host");
        };
        assert!(reason.contains("`peers`"), "{reason}");
    }
}
