//! Where applications are, for shims over IP: a table, then `/etc/hosts` and the DNS.
//!
//! Looking up may take seconds, so a thread of its own does it; the data plane asks and hears the
//! answer through a box with a bell.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use carina_api::{AppName, PortId};
use carina_netdev::{address_of_host, host_of_address};

use crate::mailbox::Mailbox;

/// What is asked.
enum Question {
    /// Where is this application? For the flow of this port.
    Where(PortId, AppName),
    /// Who is at this address?
    Who(IpAddr),
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Where an application is, or why nobody knows.
    Where(PortId, Result<SocketAddr, String>),
    /// Who is at an address; nobody knows: the address itself.
    Who(IpAddr, AppName),
}

/// The addresses of applications. The thread ends when this is dropped, after the look-up under
/// way.
pub(crate) struct Book {
    questions: Sender<Question>,
    answers: Mailbox<Answer>,
}

impl Book {
    /// Opens the book. `table` gives `HOST` or `HOST:PORT` of applications, `port` is for those
    /// without one.
    ///
    /// # Errors
    /// When the system has no thread or descriptor to give.
    pub fn open(table: Vec<(AppName, String)>, port: u16) -> std::io::Result<Book> {
        let (questions, asked) = channel();
        let answers = Mailbox::new()?;
        let reader = Reader {
            table,
            port,
            asked,
            answers: answers.clone(),
        };
        std::thread::Builder::new()
            .name("address-book".to_owned())
            .spawn(move || reader.run())?;
        Ok(Book { questions, answers })
    }

    /// Asks where an application is.
    pub fn ask_where(&self, port: PortId, name: &AppName) {
        // The thread lives as long as this end of the channel.
        let _ = self.questions.send(Question::Where(port, name.clone()));
    }

    /// Asks who is at an address.
    pub fn ask_who(&self, ip: IpAddr) {
        let _ = self.questions.send(Question::Who(ip));
    }

    /// The next answer.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.take()
    }
}

impl AsFd for Book {
    /// Readable while there may be answers.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.answers.as_fd()
    }
}

struct Reader {
    table: Vec<(AppName, String)>,
    port: u16,
    asked: Receiver<Question>,
    answers: Mailbox<Answer>,
}

impl Reader {
    fn run(self) {
        while let Ok(question) = self.asked.recv() {
            self.answers.put(match question {
                Question::Where(port, name) => Answer::Where(port, self.find(&name)),
                Question::Who(ip) => Answer::Who(ip, self.name_of(ip)),
            });
        }
    }

    fn find(&self, name: &AppName) -> Result<SocketAddr, String> {
        let row = self.table.iter().find(|(known, _)| known == name);
        match row {
            Some((_, host)) => address_of_host(host, self.port)
                .map_err(|error| format!("the address {host} of {name}: {error}")),
            None => address_of_host(name.as_str(), self.port).map_err(|error| {
                format!(
                    "nobody knows where {name} is: it is not in `peers`, and as the name of a \
                     host: {error}"
                )
            }),
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

    fn hear(book: &Book) -> Answer {
        for _ in 0..5000 {
            if let Some(answer) = book.answer() {
                return answer;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("no answer for 5 s");
    }

    #[test]
    fn the_table_answers_both_ways_and_the_unknown_is_named() {
        let name = |text: &str| AppName::new(text).unwrap();
        let table = vec![
            (name("b.ipcp"), "192.0.2.7".to_owned()),
            (name("c.ipcp"), "192.0.2.8:99".to_owned()),
        ];
        let book = Book::open(table, 3359).unwrap();
        book.ask_where(PortId(1), &name("b.ipcp"));
        book.ask_where(PortId(2), &name("c.ipcp"));
        book.ask_who("192.0.2.8".parse().unwrap());
        book.ask_where(PortId(3), &name("no such host"));
        let expected = Ok("192.0.2.7:3359".parse().unwrap());
        assert_eq!(hear(&book), Answer::Where(PortId(1), expected));
        let expected = Ok("192.0.2.8:99".parse().unwrap());
        assert_eq!(hear(&book), Answer::Where(PortId(2), expected));
        let expected = Answer::Who("192.0.2.8".parse().unwrap(), name("c.ipcp"));
        assert_eq!(hear(&book), expected);
        let Answer::Where(PortId(3), Err(reason)) = hear(&book) else {
            panic!("an address for no host");
        };
        assert!(reason.contains("`peers`"), "{reason}");
    }
}
