//! The addresses of applications for shims over IP: a table, then `/etc/hosts` and the DNS.
//!
//! A look-up may take seconds, so a thread of its own does it; answers come through a mailbox that
//! wakes the data plane.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use carina_api::{AppName, PortId};
use carina_dataplane::Mailbox;
use carina_netdev::{address_of_host, host_of_address};

use crate::error::AddressError;

/// A look-up.
enum Query {
    /// The address of an application, for the flow of this port-id.
    Address(PortId, AppName),
    /// The application at an address.
    Name(IpAddr),
}

/// The result of a look-up.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The address of an application, or why it is unknown.
    Address(PortId, Result<SocketAddr, AddressError>),
    /// The application at an address; the address itself when it is unknown.
    Name(IpAddr, AppName),
}

/// The addresses of applications. The thread ends when this is dropped, after the look-up under
/// way.
pub(crate) struct AddressResolver {
    queries: Sender<Query>,
    answers: Mailbox<Answer>,
}

impl AddressResolver {
    /// Starts the resolver. `table` gives `HOST` or `HOST:PORT` of applications, `port` is for
    /// those without one.
    ///
    /// # Errors
    /// When the system has no thread or descriptor to give.
    pub fn open(table: Vec<(AppName, String)>, port: u16) -> std::io::Result<AddressResolver> {
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

    /// Looks up the address of an application.
    pub fn resolve(&self, port: PortId, name: &AppName) {
        // The thread lives as long as this end of the channel.
        let _ = self.queries.send(Query::Address(port, name.clone()));
    }

    /// Looks up the application at an address.
    pub fn reverse(&self, ip: IpAddr) {
        let _ = self.queries.send(Query::Name(ip));
    }

    /// The next answer.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.take()
    }
}

impl AsFd for AddressResolver {
    /// Readable while there may be answers.
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
        let is_there =
            |host: &str| address_of_host(host, self.port).is_ok_and(|address| address.ip() == ip);
        let row = self.table.iter().find(|(_, host)| is_there(host));
        row.map(|(name, _)| name.clone())
            .or_else(|| AppName::new(host_of_address(ip)?).ok())
            .unwrap_or_else(|| AppName::new(ip.to_string()).expect("digits, dots and colons"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_answer(resolver: &AddressResolver) -> Answer {
        // A name server that does not answer is asked several times by the system.
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
