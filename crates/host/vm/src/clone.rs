//! A machine that goes on where its template was saved.

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::accel::Accel;
use crate::cache::Cache;
use crate::error::{Context, Error, Result};
use crate::machine::{Life, Machine};
use crate::qmp::Qmp;
use crate::running::{Running, Times};
use crate::template::{Template, Templates};

impl Machine {
    /// Starts the machine as a copy of one that has booted already, and returns when it runs, has
    /// its identity and its files, and its commands have ended: in a fraction of the time of a
    /// boot. Where the template is missing, it is made first.
    ///
    /// The clone's identity: host name, clock, a seed of its own for random numbers, and the
    /// addresses and cables of its cards (a card without an address gets
    /// [`mac_of`](crate::mac_of) its name; one that is plugged into nothing stays as it is).
    /// Its memory is that of the template until it writes to it. What the template's processes drew
    /// at random before is the same in all clones; the image's own draw nothing. A clone that
    /// reboots boots as the machine would, but without its own files.
    ///
    /// # Errors
    ///
    /// When the machine boots from a disk, has a shared-memory device or a vhost-user card, or
    /// more than 256 KiB of files; as [`Templates::obtain`] and [`Machine::start`]; and when the
    /// guest does not take its identity, or its commands do not end, within 3 minutes.
    pub fn start_clone(self, cache: &Cache, templates: &Templates) -> Result<Running> {
        let called = Instant::now();
        let accel = self.accel_in(cache)?;
        let template = templates.obtain(cache, &self)?;
        match self.revive(&template, accel, called) {
            // Memory that someone wrote to may do anything to a clone.
            Err(_) if !template.is_whole() => {
                templates.discard(template)?;
                let template = templates.obtain(cache, &self)?;
                self.revive(&template, accel, called)
            }
            result => result,
        }
    }

    /// Starts QEMU with the template's state, and has the guest go on as this machine.
    fn revive(&self, template: &Template, accel: Accel, called: Instant) -> Result<Running> {
        let obtained = called.elapsed();
        let (running, mut qmp) = self.restore(template, accel)?;
        let restored = called.elapsed();
        for (id, _) in self.plugged() {
            qmp.set_link(id, true)?;
        }
        self.go_on(running, qmp, called, [obtained, restored])
    }

    /// Has a guest that stands still, with its cables in, go on as this machine. `template` and
    /// `restored` are how long after the call its template was there, and the guest restored.
    fn go_on(
        &self,
        mut running: Running,
        mut qmp: Qmp,
        called: Instant,
        [template, restored]: [Duration; 2],
    ) -> Result<Running> {
        qmp.resume()?;
        drop(qmp);
        let resumed = called.elapsed();
        self.give_identity(&running)?;
        running.note_whole()?;
        running.set_times(Times {
            template,
            restored,
            running: resumed,
            answered: called.elapsed(),
        });
        Ok(running)
    }

    /// Makes a copy that stands still, under the machine's name with a number. Before that it runs
    /// what it will run to become another machine: emulated, it is awake many times faster then.
    pub(crate) fn stand(
        &self,
        number: u64,
        cache: &Cache,
        templates: &Templates,
    ) -> Result<Running> {
        let accel = self.accel_in(cache)?;
        let template = templates.obtain(cache, self)?;
        let standing = self.standing(number);
        let (running, mut qmp) = standing.restore(&template, accel)?;
        // With its link up, a card does all that it does later; what it sends goes nowhere.
        for id in standing.card_ids() {
            qmp.set_link(id, true)?;
        }
        qmp.resume()?;
        let script = standing.rehearsal()?;
        has_run(&running, &script, REHEARSAL_LIMIT, "rehearse")?;
        for id in standing.card_ids() {
            qmp.set_link(id, false)?;
        }
        qmp.pause()?;
        Ok(running)
    }

    /// Has a copy that stands still go on as this machine.
    pub(crate) fn wake(&self, mut running: Running, called: Instant) -> Result<Running> {
        self.clear_run_dir()?;
        running.adopt(self.run_dir(), self.name(), self.taps_in())?;
        let mut qmp = running.qmp()?;
        let restored = called.elapsed();
        for (id, nic) in self.plugged() {
            let [back_end, port] = nic.backend.behind_hub(id)?;
            qmp.add_back_end(back_end, self.taps_in())?;
            qmp.execute("netdev_add", port)?;
            qmp.set_link(id, true)?;
        }
        self.go_on(running, qmp, called, [Duration::ZERO, restored])
    }

    /// Starts QEMU with the template's state. The guest stands still there.
    fn restore(&self, template: &Template, accel: Accel) -> Result<(Running, Qmp)> {
        let memory = template.memory();
        let life = Life::Clone {
            memory: &memory,
            key: &template.info().key,
        };
        let running = self.spawn(accel, life)?;
        let mut qmp = running.wait_monitor(RESTORE_LIMIT)?;
        let restored = qmp
            .ignore_shared_memory()
            .and_then(|()| send_state(&mut qmp, &running, template.state()));
        match restored {
            Ok(()) => Ok((running, qmp)),
            // When QEMU has ended over the state, its last words say more.
            Err(error) => Err(running.reason_of_end().unwrap_or(error)),
        }
    }

    /// Makes the copy another machine than its template, then runs what this machine is to run.
    fn give_identity(&self, running: &Running) -> Result<()> {
        let script = self.identity()?;
        has_run(running, &script, IDENTITY_LIMIT, "take its identity")
    }
}

/// Has the guest run a script; `what` is what that does.
fn has_run(running: &Running, script: &str, limit: Duration, what: &str) -> Result<()> {
    let output = running.run_within(script, limit)?;
    if output.is_success() {
        return Ok(());
    }
    Err(Error::Guest(format!(
        "{} does not {what} (status {}): {}",
        running.record().name,
        output.status,
        output.error_text()
    )))
}

/// Hands the state to a QEMU that waits for it, and waits until it stands where that was saved.
fn send_state(qmp: &mut Qmp, running: &Running, state: &[u8]) -> Result<()> {
    let path = &running.record().qmp;
    // A QEMU that has become another user may make no sockets in the run directory.
    let (mut stream, theirs) = UnixStream::pair().context("make a socket for", path)?;
    qmp.migrate_incoming(theirs.as_fd())?;
    drop(theirs);
    stream
        .set_write_timeout(Some(RESTORE_LIMIT))
        .and_then(|()| stream.write_all(state))
        .and_then(|()| stream.shutdown(Shutdown::Write))
        .context("send the state to", path)?;
    let is_done = |data: &Value| data["status"] == "completed";
    qmp.wait_event("MIGRATION", is_done, RESTORE_LIMIT)
        .map(drop)
}

const RESTORE_LIMIT: Duration = Duration::from_secs(60);
/// Commands of the machine are in it.
const IDENTITY_LIMIT: Duration = Duration::from_secs(180);
/// A guest that needs longer under emulation is of no use in a pool.
const REHEARSAL_LIMIT: Duration = Duration::from_secs(60);
