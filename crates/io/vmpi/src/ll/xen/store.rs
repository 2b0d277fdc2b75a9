//! A client of the xenstore: the small database in which domains publish what others look for.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use carina_sys::{Epoll, Interest, XenDomain, monotonic_ns, open_xenbus};
use thiserror::Error;

use super::message::{Decoder, Kind, Message, MessageError, encode};

/// A connection to the xenstore, through the kernel. After an error other than
/// [`StoreError::Refused`] it must be dropped.
#[derive(Debug)]
pub(super) struct Store {
    file: File,
    epoll: Epoll,
    decoder: Decoder,
    request: u32,
    /// Tokens of watches that have fired.
    fired: BTreeSet<String>,
}

/// Why a request to the xenstore failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(super) enum StoreError {
    #[error("the xenstore: {0}")]
    Io(#[from] io::Error),
    #[error("the xenstore sent a broken message: {0}")]
    Message(#[from] MessageError),
    #[error("the xenstore refuses {path}: {code}")]
    Refused { path: String, code: String },
    #[error("the xenstore gave no answer within {ANSWER_S} s")]
    Silent,
}

impl Store {
    pub(super) fn open() -> Result<Store, StoreError> {
        let file = open_xenbus()?;
        let epoll = Epoll::new()?;
        epoll.add(&file, 0, Interest::Read)?;
        Ok(Store {
            file,
            epoll,
            decoder: Decoder::default(),
            request: 0,
            fired: BTreeSet::new(),
        })
    }

    /// Reads a node as text; `None` if the node does not exist. A path that does not begin with `/`
    /// lies in the directory of this domain.
    pub(super) fn read(&mut self, path: &str) -> Result<Option<String>, StoreError> {
        let answer = self.ask(Kind::Read, path, &[path.as_bytes(), &[0]]);
        let text = |message: Message| String::from_utf8_lossy(&message.payload).into_owned();
        existing(answer.map(text))
    }

    /// The names below a node; none if the node does not exist.
    pub(super) fn list(&mut self, path: &str) -> Result<Vec<String>, StoreError> {
        let answer = self.ask(Kind::Directory, path, &[path.as_bytes(), &[0]]);
        let names = existing(answer.map(|message| message.strings().collect()))?;
        Ok(names.unwrap_or_default())
    }

    /// Writes a node that, besides this domain, only `reader` may read.
    pub(super) fn write_for(
        &mut self,
        path: &str,
        value: &str,
        own: XenDomain,
        reader: XenDomain,
    ) -> Result<(), StoreError> {
        // The node exists with its permissions before it has its value.
        self.ask(Kind::Write, path, &[path.as_bytes(), &[0]])?;
        let permissions = format!("n{own}\0r{reader}\0");
        let parts: [&[u8]; 3] = [path.as_bytes(), &[0], permissions.as_bytes()];
        self.ask(Kind::SetPermissions, path, &parts)?;
        let parts: [&[u8]; 3] = [path.as_bytes(), &[0], value.as_bytes()];
        self.ask(Kind::Write, path, &parts).map(drop)
    }

    /// Removes a node and all below it, if the node exists.
    pub(super) fn remove(&mut self, path: &str) -> Result<(), StoreError> {
        let answer = self.ask(Kind::Remove, path, &[path.as_bytes(), &[0]]);
        existing(answer).map(drop)
    }

    /// Has the xenstore report changes of a node, under the name `token`. The first report comes at
    /// once.
    pub(super) fn watch(&mut self, path: &str, token: &str) -> Result<(), StoreError> {
        let parts: [&[u8]; 4] = [path.as_bytes(), &[0], token.as_bytes(), &[0]];
        self.ask(Kind::Watch, path, &parts).map(drop)
    }

    /// Ends a watch; one that does not exist is no error.
    pub(super) fn unwatch(&mut self, path: &str, token: &str) -> Result<(), StoreError> {
        let parts: [&[u8]; 4] = [path.as_bytes(), &[0], token.as_bytes(), &[0]];
        existing(self.ask(Kind::Unwatch, path, &parts)).map(drop)
    }

    /// Takes the tokens of the watches that have fired. It does not wait.
    pub(super) fn take_fired(&mut self) -> Result<BTreeSet<String>, StoreError> {
        // A store that only sends events must not keep this thread.
        for _ in 0..READS_MAX {
            if self.receive(None)?.is_none() && !self.fill()? {
                break;
            }
        }
        Ok(std::mem::take(&mut self.fired))
    }

    /// The number of the domain of this system.
    pub(super) fn own_domain(&mut self) -> Result<XenDomain, StoreError> {
        let text = self.read("domid")?.unwrap_or_default();
        text.trim().parse().map_err(|_| StoreError::Refused {
            path: "domid".into(),
            code: format!("{text:?} is no number of a domain"),
        })
    }

    fn ask(&mut self, kind: Kind, path: &str, parts: &[&[u8]]) -> Result<Message, StoreError> {
        self.request = self.request.wrapping_add(1);
        let message = encode(kind, self.request, parts)?;
        self.file.write_all(&message)?;
        let deadline_ns = monotonic_ns() + ANSWER_S * 1_000_000_000;
        loop {
            if let Some(answer) = self.receive(Some(self.request))? {
                if answer.kind == Kind::Error as u32 {
                    return Err(StoreError::Refused {
                        path: path.to_owned(),
                        code: answer.strings().next().unwrap_or_default(),
                    });
                }
                return Ok(answer);
            }
            if !self.fill()? {
                let left_ns = deadline_ns.saturating_sub(monotonic_ns());
                if left_ns == 0 {
                    return Err(StoreError::Silent);
                }
                self.epoll.wait(&mut Vec::new(), Some(left_ns))?;
            }
        }
    }

    /// Takes messages until the answer to `request` comes; notes watches that have fired. `None`:
    /// more bytes are needed.
    fn receive(&mut self, request: Option<u32>) -> Result<Option<Message>, StoreError> {
        while let Some(message) = self.decoder.take()? {
            if message.kind == Kind::WatchEvent as u32 {
                let token = message.strings().nth(1);
                // Tokens are those of this program, so that there are few.
                self.fired
                    .extend(token.filter(|_| self.fired.len() < TOKENS_MAX));
            } else if Some(message.request) == request {
                return Ok(Some(message));
            }
            // Other answers belong to requests that were given up.
        }
        Ok(None)
    }

    /// Reads the bytes that have arrived. Returns whether there were any.
    fn fill(&mut self) -> Result<bool, StoreError> {
        let mut bytes = [0; 4096];
        match self.file.read(&mut bytes) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.decoder.push(&bytes[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Store {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Turns the error of a node that does not exist into `None`.
fn existing<T>(answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(StoreError::Refused { code, .. }) if code == "ENOENT" => Ok(None),
        Err(error) => Err(error),
    }
}

/// How long the xenstore may take for an answer, in seconds.
const ANSWER_S: u64 = 5;
const READS_MAX: usize = 64;
const TOKENS_MAX: usize = 16;
