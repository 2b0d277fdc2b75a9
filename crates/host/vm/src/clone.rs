//! Clones: machines that continue from the saved state of a template.

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
    /// Starts the machine as a clone of a guest that has already booted. Returns when the clone is
    /// running, has its identity and its files, and its commands have ended. This takes a fraction
    /// of the time of a boot. If the template does not exist yet, it is created first.
    ///
    /// The clone's identity: host name, clock, a seed of its own for random numbers, and the
    /// addresses and links of its cards (a card without an address gets [`mac_of`](crate::mac_of)
    /// of its name; an unplugged card keeps the template's address, and its link stays down). The
    /// clone shares the template's memory until it writes to it. Random numbers that the template's
    /// processes drew before are the same in all clones; the image's own processes draw none. A
    /// clone that reboots boots as the machine would, but without its own files.
    ///
    /// # Errors
    ///
    /// The machine boots from a disk, has a shared-memory device or a vhost-user card, or more than
    /// 256 KiB of files; as for [`Templates::obtain`] and [`Machine::start`]; or the guest does not
    /// take its identity, or its commands do not end, within 3 minutes.
    pub fn start_clone(self, cache: &Cache, templates: &Templates) -> Result<Running> {
        let called = Instant::now();
        let accel = self.accel_in(cache)?;
        let template = templates.obtain(cache, &self)?;
        match self.revive(&template, accel, called) {
            // The template's memory was changed, so the failure may be due to that. A new template
            // is created.
            Err(_) if !template.is_whole() => {
                templates.discard(template)?;
                let template = templates.obtain(cache, &self)?;
                self.revive(&template, accel, called)
            }
            result => result,
        }
    }

    /// Starts QEMU with the template's state, and resumes the guest as this machine.
    fn revive(&self, template: &Template, accel: Accel, called: Instant) -> Result<Running> {
        let obtained = called.elapsed();
        let (running, mut qmp) = self.restore(template, accel)?;
        let restored = called.elapsed();
        for (id, _) in self.plugged() {
            qmp.set_link(id, true)?;
        }
        self.go_on(running, qmp, called, [obtained, restored])
    }

    /// Resumes a paused guest, whose links are up, as this machine. `template` is the time after
    /// the call at which the template was available, `restored` the time at which the guest was
    /// restored.
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

    /// Creates a paused clone with the machine's name and a number. Before it is paused, the clone
    /// rehearses the steps by which it later becomes another machine. An emulated guest then wakes
    /// many times faster.
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
        // With its link up, a card does everything that it does later; its frames go nowhere.
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

    /// Resumes a paused clone as this machine.
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

    /// Starts QEMU with the template's state. The guest stays paused.
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
            // If QEMU rejected the state and ended, its last output says more.
            Err(error) => Err(running.reason_of_end().unwrap_or(error)),
        }
    }

    /// Gives the clone its own identity, then runs the machine's script and commands in it.
    fn give_identity(&self, running: &Running) -> Result<()> {
        let script = self.identity()?;
        has_run(running, &script, IDENTITY_LIMIT, "set its own identity")
    }
}

/// Runs a script in the guest. `what` names the purpose in the error.
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

/// Sends the state to a QEMU that waits for it, and waits until QEMU has restored the guest.
fn send_state(qmp: &mut Qmp, running: &Running, state: &[u8]) -> Result<()> {
    let path = &running.record().qmp;
    // A QEMU that runs as another user may not create sockets in the run directory.
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
/// Time limit for a clone to take its identity, including the machine's own commands.
const IDENTITY_LIMIT: Duration = Duration::from_secs(180);
/// Time limit for the rehearsal of a pool's clone; a guest that needs longer is of no use in a
/// pool.
const REHEARSAL_LIMIT: Duration = Duration::from_secs(60);
