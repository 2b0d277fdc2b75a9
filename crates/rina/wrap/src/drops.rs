//! Datagrams that relays have dropped, counted under their reasons, for all relays of a user.
//!
//! Each relay adds its counts to a file beside the name table, `names.drops`: at most once a second
//! while it drops datagrams, and at its end. A lock (`flock`) admits one writer at a time.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Why a relay has dropped a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropReason {
    /// The program does not read: its socket has no room.
    ProgramFull,
    /// The flow to the peer has no room.
    PeerFull,
    /// Already 16 datagrams waited until the flow to the peer opens.
    FlowPending,
    /// The flow to the peer was refused.
    FlowRefused,
    /// The flow to the peer has ended before it took the waiting datagrams.
    FlowEnded,
    /// The program's socket already has the largest number of peers.
    TooManyPeers,
    /// The datagram is empty, which a flow cannot carry.
    Empty,
    /// A rule refuses the address.
    RefusedByRule,
    /// The kernel does not send the datagram to its IP address.
    Kernel,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 9] = [
        DropReason::ProgramFull,
        DropReason::PeerFull,
        DropReason::FlowPending,
        DropReason::FlowRefused,
        DropReason::FlowEnded,
        DropReason::TooManyPeers,
        DropReason::Empty,
        DropReason::RefusedByRule,
        DropReason::Kernel,
    ];

    /// Name of the counter.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::ProgramFull => "program_full",
            DropReason::PeerFull => "peer_full",
            DropReason::FlowPending => "flow_pending",
            DropReason::FlowRefused => "flow_refused",
            DropReason::FlowEnded => "flow_ended",
            DropReason::TooManyPeers => "too_many_peers",
            DropReason::Empty => "empty",
            DropReason::RefusedByRule => "refused_by_rule",
            DropReason::Kernel => "kernel",
        }
    }
}

/// How many datagrams were dropped for each reason, by the reason's name.
pub type Counts = BTreeMap<String, u64>;

/// Returns the counts of all relays of the user whose name table is in the file `names`.
///
/// # Errors
/// The file cannot be read.
pub fn read(names: &Path) -> io::Result<Counts> {
    let mut counts = match File::open(path_beside(names)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Counts::new(),
        file => read_counts(&mut file?)?,
    };
    for reason in DropReason::ALL {
        counts.entry(reason.name().to_owned()).or_default();
    }
    Ok(counts)
}

/// The drops of one relay that are not in the file yet. What is left is written when the value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Drops {
    path: PathBuf,
    counts: [u64; DropReason::ALL.len()],
    write_at: Option<Instant>,
}

impl Drops {
    /// Counts for the relays of the user whose name table is in the file `names`.
    pub(crate) fn beside(names: &Path) -> Drops {
        Drops {
            path: path_beside(names),
            counts: [0; DropReason::ALL.len()],
            write_at: None,
        }
    }

    pub(crate) fn add(&mut self, reason: DropReason, datagrams: usize) {
        self.counts[reason as usize] += datagrams as u64;
        if self.write_at.is_none() && datagrams > 0 {
            self.write_at = Some(Instant::now() + INTERVAL);
        }
    }

    /// When the counts are written next; `None` while nothing was dropped.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.write_at
    }

    /// Writes the counts if they are due. Without a writable file they are lost, and the relay
    /// continues.
    pub(crate) fn write_if_due(&mut self, now: Instant) {
        if self.write_at.is_some_and(|at| at <= now) {
            let _ = self.write();
        }
    }

    fn write(&mut self) -> io::Result<()> {
        self.write_at = None;
        let counts = std::mem::take(&mut self.counts);
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let mut file = options.custom_flags(no_link).open(&self.path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        let mut all = read_counts(&mut file)?;
        for (reason, count) in DropReason::ALL.into_iter().zip(counts) {
            let total = all.entry(reason.name().to_owned()).or_default();
            *total = total.saturating_add(count);
        }
        let text = serde_json::to_vec(&all)?;
        file.seek(SeekFrom::Start(0))?;
        file.set_len(0)?;
        file.write_all(&text)
    }
}

impl Drop for Drops {
    fn drop(&mut self) {
        if self.write_at.is_some() {
            let _ = self.write();
        }
    }
}

/// Reads a file of counts. A damaged file, such as one that a full disk has cut, counts as empty.
fn read_counts(file: &mut File) -> io::Result<Counts> {
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

fn path_beside(names: &Path) -> PathBuf {
    let mut path = names.as_os_str().to_owned();
    path.push(".drops");
    path.into()
}

/// Shortest time between two additions of one relay to the file.
const INTERVAL: Duration = Duration::from_secs(1);

/// Largest number of bytes that are read of the file, which has about 200.
const FILE_BYTES_MAX: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_relays_are_added() {
        let directory = tempfile::tempdir().unwrap();
        let names = directory.path().join("names");
        let count = |reason: DropReason| read(&names).unwrap()[reason.name()];
        assert_eq!(count(DropReason::Empty), 0);
        let [mut one, mut other] = [Drops::beside(&names), Drops::beside(&names)];
        one.add(DropReason::Empty, 2);
        other.add(DropReason::Empty, 3);
        other.add(DropReason::Kernel, 1);
        assert!(one.deadline().is_some());
        one.write_if_due(Instant::now());
        assert_eq!(count(DropReason::Empty), 0);
        one.write_if_due(Instant::now() + INTERVAL);
        assert_eq!((count(DropReason::Empty), one.deadline()), (2, None));
        drop(other);
        let both = [DropReason::Empty, DropReason::Kernel].map(count);
        assert_eq!(both, [5, 1]);
        std::fs::write(path_beside(&names), "{\"empty\":").unwrap();
        one.add(DropReason::PeerFull, 1);
        drop(one);
        let both = [DropReason::Empty, DropReason::PeerFull].map(count);
        assert_eq!(both, [0, 1]);
    }
}
