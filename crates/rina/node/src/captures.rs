//! Captures: the PDUs that an IPCP sends and receives, as pcapng over `control.sock`.
//!
//! ```text
//!   POST /v1/captures            GET /v1/captures/N, repeatedly              DELETE
//!   (none) ----------> running ------------------------------------> ... ----------> (none)
//!                         |  not read for 15 s
//!                         +--------------------------------------------> (none)
//! ```
//!
//! The data plane writes copies into a bounded batch ([`carina_frame_engine::tap::Tap`]). Each
//! `GET` takes the batch and returns the next part of the file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_api::control::{CaptureEnd, CaptureInfo};
use carina_api::{ErrorBody, ErrorCode, IpcpId};
use carina_dataplane::Command;
use carina_frame_engine::tap::{Tap, TapReader};
use carina_frame_engine::tap_file::TapFile;
use carina_ipcp::DifConfig;
use carina_wire::pcapng::{Interface, LinkType};

use crate::core::Core;
use crate::ipcp_kinds;
use crate::membership::Membership;

/// All running captures.
#[derive(Default)]
pub(crate) struct Captures(Mutex<Table>);

#[derive(Default)]
struct Table {
    last_id: u64,
    running: BTreeMap<u64, Capture>,
}

struct Capture {
    file: TapFile,
    asked_at: Instant,
}

impl Captures {
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_alive = |capture: &mut Capture| capture.asked_at.elapsed() < IDLE_TIMEOUT;
        table.running.retain(|_, capture| is_alive(capture));
        table
    }

    /// Starts a capture whose other end is on the data plane, and puts its number into `info`.
    /// # Errors
    /// The largest allowed number of captures is running.
    pub(crate) fn begin(
        &self,
        reader: TapReader,
        snap_bytes: Option<u32>,
        info: &mut CaptureInfo,
    ) -> Result<(), ErrorBody> {
        let mut table = self.table();
        if table.running.len() >= CAPTURES_MAX {
            let what = format!("{CAPTURES_MAX} captures run already; end one");
            return Err(ErrorBody::new(ErrorCode::LimitReached, what));
        }
        table.last_id += 1;
        info.id = table.last_id;
        let interface = Interface {
            link: LinkType(info.link_type),
            name: info.ipcp.to_string(),
            description: info.description.clone(),
            snap_bytes: snap_bytes.unwrap_or(0),
        };
        let capture = Capture {
            file: TapFile::new(vec![(reader, interface)]),
            asked_at: Instant::now(),
        };
        table.running.insert(info.id, capture);
        Ok(())
    }

    /// The next part of the file; empty when no packet was captured since the last part. The first
    /// part contains the file header and is never empty.
    ///
    /// # Errors
    /// There is no such capture.
    pub(crate) fn read(&self, id: u64) -> Result<Vec<u8>, ErrorBody> {
        let mut table = self.table();
        let capture = table.running.get_mut(&id).ok_or_else(|| missing(id))?;
        capture.asked_at = Instant::now();
        Ok(capture.file.portion())
    }

    /// Ends a capture.
    ///
    /// # Errors
    /// There is no such capture.
    pub(crate) fn end(&self, id: u64) -> Result<CaptureEnd, ErrorBody> {
        let capture = self.table().running.remove(&id);
        let capture = capture.ok_or_else(|| missing(id))?;
        Ok(CaptureEnd {
            packets: capture.file.packets(),
            missed: capture.file.missed(),
        })
    }
}

fn missing(id: u64) -> ErrorBody {
    let what = format!(
        "there is no capture {id}; a capture also ends when no one reads its packets for a while"
    );
    ErrorBody::new(ErrorCode::NotFound, what)
}

impl Core {
    /// Starts a capture at an IPCP, given by its own name or by the name of its DIF.
    pub(crate) fn capture(&mut self, name: &str, tap: Tap) -> Result<CaptureInfo, ErrorBody> {
        let id = self.captured(name)?;
        let ipcp = &self.ipcps[id];
        let word = ipcp_kinds::word(ipcp.kind);
        let Some(link) = ipcp_kinds::capture_link_type(ipcp.kind) else {
            let what = format!("IPCP {name} carries no PDUs itself, so it cannot be captured");
            return Err(ErrorBody::new(ErrorCode::Unsupported, what));
        };
        let member = match &ipcp.member {
            Some(member) => Some(member),
            // Most SDUs of a shim are PDUs of a DIF above, so that DIF's settings help to decode
            // them.
            None => self
                .ipcps
                .values()
                .filter_map(|upper| upper.member.as_ref())
                .find(|member: &&Membership| member.is_over(&ipcp.dif)),
        };
        let mut description = format!("carina {word}");
        if let Some(member) = member {
            // The field widths are unknown until the IPCP has joined; its dialect is known.
            let dialect = member.made_from.dialect;
            if !dialect.is_native() {
                description += &format!(" dialect={}", dialect.name());
            }
            if let Some(config) = &member.config {
                description += &settings(config);
            }
        }
        let info = CaptureInfo {
            id: 0,
            ipcp: ipcp.name.clone(),
            dif: ipcp.dif.clone(),
            link_type: link.0,
            description,
        };
        self.plane.send(Command::Tap { ipcp: id, tap });
        Ok(info)
    }

    fn captured(&self, name: &str) -> Result<IpcpId, ErrorBody> {
        if let Some(id) = self.ipcps.named(name) {
            return Ok(id);
        }
        let mut in_dif = self
            .ipcps
            .ids()
            .into_iter()
            .filter(|id| self.ipcps[*id].dif.as_str() == name);
        match (in_dif.next(), in_dif.next()) {
            (Some(id), None) => Ok(id),
            (Some(_), Some(_)) => {
                let what = format!("DIF {name} has several IPCPs here; name one of them");
                Err(ErrorBody::new(ErrorCode::Conflict, what))
            }
            (None, _) => {
                let what = format!("there is no IPCP or DIF {name:?} in this system");
                Err(ErrorBody::new(ErrorCode::NotFound, what))
            }
        }
    }
}

/// The DIF's settings that are needed to decode its PDUs, as text.
fn settings(config: &DifConfig) -> String {
    let widths = config.widths;
    let mut text = String::new();
    for (key, width) in [
        ("address", widths.address),
        ("cep", widths.cep),
        ("qos", widths.qos),
        ("seq", widths.seq),
        ("ctrl_seq", widths.ctrl_seq),
        ("length", widths.length),
        ("rate", widths.rate),
        ("frame", widths.frame),
    ] {
        // Writing to a string does not fail.
        let _ = write!(text, " {key}={width}");
    }
    let delimiting = config.policies.get("delimiting");
    let delimiting = delimiting.map_or("standard", |policy| policy.name.as_str());
    text + " delimiting=" + delimiting
}

/// Largest number of captures that run at the same time.
const CAPTURES_MAX: usize = 16;

/// A capture ends if it is not read for this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use carina_wire::pcapng::{Item, Reader};

    use super::*;

    fn info() -> CaptureInfo {
        CaptureInfo {
            id: 0,
            ipcp: "blue".parse().expect("a name"),
            dif: "blue".parse().expect("a name"),
            link_type: 147,
            description: "carina normal".into(),
        }
    }

    #[test]
    fn portions_make_one_file() {
        let captures = Captures::default();
        let (_tap, reader) = Tap::new(100);
        let mut info = info();
        captures.begin(reader, Some(100), &mut info).expect("room");
        let mut file = Reader::new();
        file.feed(&captures.read(info.id).expect("it runs"));
        assert_eq!(file.poll(), Ok(Some(Item::Section)));
        assert!(matches!(file.poll(), Ok(Some(Item::Interface(i))) if i.name == "blue"));
        assert_eq!(captures.read(info.id), Ok(Vec::new()));
        assert_eq!(captures.end(info.id), Ok(CaptureEnd::default()));
        assert!(captures.read(info.id).is_err() && captures.end(info.id).is_err());
    }

    #[test]
    fn only_so_many_run_at_a_time() {
        let captures = Captures::default();
        for _ in 0..CAPTURES_MAX {
            let begun = captures.begin(Tap::new(1).1, None, &mut info());
            begun.expect("room");
        }
        let refused = captures.begin(Tap::new(1).1, None, &mut info());
        assert_eq!(refused.unwrap_err().code, ErrorCode::LimitReached);
    }
}
