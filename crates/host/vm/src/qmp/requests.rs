//! The QMP requests that this crate uses.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use serde_json::{Value, json};

use super::Qmp;
use crate::error::{Error, Result};

/// QEMU's name of the connection for an incoming or outgoing guest.
const CONNECTION: &str = "guest";

/// The run state that QEMU reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunState {
    /// Whether the guest's processors are running.
    pub running: bool,
    /// QEMU's name of the state, such as `running`, `paused` or `shutdown`.
    pub status: String,
}

/// Durations of a completed migration, as the sending QEMU measured them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// How long the guest was paused during the migration.
    pub downtime: Duration,
    /// Duration of the whole migration.
    pub total: Duration,
}

impl Qmp {
    /// The state of the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn status(&mut self) -> Result<RunState> {
        let value = self.execute("query-status", json!({}))?;
        let running = value.get("running").and_then(Value::as_bool);
        let status = value.get("status").and_then(Value::as_str);
        match (running, status) {
            (Some(running), Some(status)) => Ok(RunState {
                running,
                status: status.to_owned(),
            }),
            _ => Err(Error::Qmp(format!(
                "query-status: cannot parse QEMU's answer: {value}"
            ))),
        }
    }

    /// The host's threads that run the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn processor_threads(&mut self) -> Result<Vec<i32>> {
        let value = self.execute("query-cpus-fast", json!({}))?;
        let threads = value.as_array().map(|cpus| {
            let ids = cpus.iter().map(|cpu| cpu.get("thread-id")?.as_i64());
            ids.map(|id| i32::try_from(id?).ok()).collect()
        });
        threads.flatten().ok_or_else(|| {
            Error::Qmp(format!(
                "query-cpus-fast: cannot parse QEMU's answer: \
                {value}"
            ))
        })
    }

    /// Starts to send the guest over a connection to the QEMU that waits for it. This works even if
    /// this QEMU may not open sockets itself.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn migrate(&mut self, connection: BorrowedFd<'_>) -> Result<()> {
        self.execute_with("getfd", json!({ "fdname": CONNECTION }), &[connection])?;
        let uri = format!("fd:{CONNECTION}");
        self.execute("migrate", json!({ "uri": uri })).map(drop)
    }

    /// The result of the migration; `None` while it is in progress.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`], or the guest cannot be sent.
    pub fn migration(&mut self) -> Result<Option<Migration>> {
        let value = self.execute("query-migrate", json!({}))?;
        let ms = |field: &str| {
            let ms = value.get(field).and_then(Value::as_u64);
            Duration::from_millis(ms.unwrap_or_default())
        };
        match value.get("status").and_then(Value::as_str) {
            Some("completed") => Ok(Some(Migration {
                downtime: ms("downtime"),
                total: ms("total-time"),
            })),
            Some("failed" | "cancelled" | "cancelling") | None => {
                Err(Error::Qmp(format!("the guest was not sent: {value}")))
            }
            Some(_) => Ok(None),
        }
    }

    /// Whether a migration has paused the guest and waits for the command to send the rest.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn awaits_switchover(&mut self) -> Result<bool> {
        let value = self.execute("query-migrate", json!({}))?;
        Ok(value
            .get("status")
            .is_some_and(|status| status == SWITCHOVER))
    }

    /// Lets a migration that has paused the guest send the rest.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn switch_over(&mut self) -> Result<()> {
        self.execute("migrate-continue", json!({ "state": SWITCHOVER }))
            .map(drop)
    }

    /// Sets what later migrations of a machine do with its disk. Before a guest is sent whose disk
    /// is being copied, `waits` makes the migration wait for [`Qmp::switch_over`] when it has
    /// paused the guest. QEMU opens the disk of a guest that has arrived when the guest resumes.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn prepare_disk(&mut self, waits: bool) -> Result<()> {
        let to = |name, state| json!({ "capability": name, "state": state });
        let waits = to("pause-before-switchover", waits);
        let capabilities = json!([waits, to("late-block-activate", true)]);
        let arguments = json!({ "capabilities": capabilities });
        self.execute("migrate-set-capabilities", arguments)
            .map(drop)
    }

    /// Makes later migrations skip memory in a shared file, which the other end has already, and
    /// makes QEMU report their progress in `MIGRATION` events. Both ends of a migration need this.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn ignore_shared_memory(&mut self) -> Result<()> {
        let on = |name| json!({ "capability": name, "state": true });
        let capabilities = json!([on("x-ignore-shared"), on("events")]);
        let arguments = json!({ "capabilities": capabilities });
        self.execute("migrate-set-capabilities", arguments)
            .map(drop)
    }

    /// Makes later migrations include all of the memory, also memory in a file that a clone shares
    /// with its template, and run at full speed.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn whole_memory(&mut self) -> Result<()> {
        let to = |name, state| json!({ "capability": name, "state": state });
        let capabilities = json!([to("x-ignore-shared", false), to("events", true)]);
        let arguments = json!({ "capabilities": capabilities });
        self.execute("migrate-set-capabilities", arguments)?;
        let arguments = json!({ "max-bandwidth": BYTES_PER_SECOND });
        self.execute("migrate-set-parameters", arguments).map(drop)
    }

    /// Sets how long a guest may be stopped while the last of its memory is sent, in ms.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn set_downtime_limit(&mut self, ms: u64) -> Result<()> {
        let arguments = json!({ "downtime-limit": ms });
        self.execute("migrate-set-parameters", arguments).map(drop)
    }

    /// Makes QEMU read a guest from a connection.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub(crate) fn migrate_incoming(&mut self, connection: BorrowedFd<'_>) -> Result<()> {
        self.execute_with("getfd", json!({ "fdname": CONNECTION }), &[connection])?;
        let uri = format!("fd:{CONNECTION}");
        self.execute("migrate-incoming", json!({ "uri": uri }))
            .map(drop)
    }

    /// Pauses the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn pause(&mut self) -> Result<()> {
        self.execute("stop", json!({})).map(drop)
    }

    /// Resumes the guest's processors.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn resume(&mut self) -> Result<()> {
        self.execute("cont", json!({})).map(drop)
    }

    /// Resets the machine, like its reset button.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn reset(&mut self) -> Result<()> {
        self.execute("system_reset", json!({})).map(drop)
    }

    /// Presses the power button. A guest without ACPI ignores it.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn power_button(&mut self) -> Result<()> {
        self.execute("system_powerdown", json!({})).map(drop)
    }

    /// Ends QEMU at once.
    ///
    /// # Errors
    ///
    /// As for [`Qmp::execute`].
    pub fn quit(&mut self) -> Result<()> {
        self.execute("quit", json!({})).map(drop)
    }
}

/// QEMU's name of the state of a migration that has paused the guest and waits.
const SWITCHOVER: &str = "pre-switchover";
/// Limit of the migration's speed, higher than memory can be copied.
const BYTES_PER_SECOND: u64 = 4 << 30;
