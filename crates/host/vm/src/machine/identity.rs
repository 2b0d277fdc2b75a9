//! Scripts that give a clone its own identity.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Machine;
use super::likeness::template_mac;
use crate::error::{Context, Error, Result};
use crate::network::{mac_of, mac_text};
use crate::shell::{base64, quoted};

impl Machine {
    /// The script that gives a clone the identity of this machine, then runs the machine's script
    /// and commands.
    pub(crate) fn identity(&self) -> Result<String> {
        let mut script = self.be()?;
        for (id, nic) in self.plugged() {
            let mac = nic.mac.unwrap_or_else(|| mac_of(&self.name, id.0));
            let (from, to) = (mac_text(template_mac(id)), mac_text(mac));
            script.push_str(&format!("carina_card {from} {to}\n"));
        }
        for (path, mode, data) in &self.files {
            if path.contains('\n') {
                return Err(Error::Invalid {
                    what: format!("file {path:?} of machine {}", self.name),
                    reason: "has a line break in its name".into(),
                });
            }
            let (mode, data) = (mode & 0o7777, base64::encode(data));
            let data = if data.is_empty() { "-" } else { &data };
            script.push_str(&format!("carina_file {mode:o} {data} {path}\n"));
        }
        if let Some(own) = &self.when_cloned {
            script.push_str(&format!("{own}\n"));
        }
        if self.runs_node {
            script.push_str("setsid sh /sbin/keep-node >/dev/null 2>&1 &\n");
        }
        if !self.commands.is_empty() {
            let commands = quoted(&self.commands.join("\n"));
            script.push_str(&format!("( eval {commands} ) >/dev/console 2>&1\n"));
        }
        if self.runs_node || !self.commands.is_empty() {
            script.push_str("exit 0\n");
        }
        Ok(script)
    }

    /// The script of the rehearsal: before it is paused, the clone performs once the steps by which
    /// it will become another machine. The script restores the cards afterwards.
    pub(crate) fn rehearsal(&self) -> Result<String> {
        let mut script = self.be()?;
        for id in self.card_ids() {
            let (own, other) = (template_mac(id), mac_of(&self.name, id.0));
            // Addresses for documentation (RFC 5737). Nothing is plugged into the cards.
            script.push_str(&format!(
                "carina_rehearse {} {} 192.0.2.1/30 192.0.2.2\n",
                mac_text(own),
                mac_text(other)
            ));
        }
        Ok(script)
    }

    fn be(&self) -> Result<String> {
        let mut seed = [0; SEED_BYTES];
        rustix::rand::getrandom(&mut seed[..], rustix::rand::GetRandomFlags::empty())
            .map_err(std::io::Error::from)
            .context("draw a seed from", Path::new("getrandom(2)"))?;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(format!(
            "carina_be {} {} {}\n",
            self.name,
            since_1970.unwrap_or_default().as_secs(),
            base64::encode(&seed)
        ))
    }
}

const SEED_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Backend, Model, Nic};

    #[test]
    fn identity_has_name_addresses_files_and_commands() {
        let nic = Nic {
            model: Model::VirtioNet,
            backend: Backend::Tap("tap0".into()),
            mac: Some([2, 0, 0, 0, 0, 9]),
        };
        let spare = Nic {
            backend: Backend::Unplugged,
            ..nic.clone()
        };
        let machine = Machine::new("r1", "/run/x")
            .unwrap()
            .nic(nic.clone())
            .nic(Nic { mac: None, ..nic })
            .nic(spare)
            .file("/etc/it's", 0o600, b"hi".to_vec())
            .command("echo 'a'")
            .when_cloned("own || exit 7")
            .node_config("x");
        let script = machine.identity().unwrap();
        let own = mac_text(mac_of("r1", 1));
        for want in [
            "carina_be r1 ",
            "carina_card 02:ff:00:00:00:00 02:00:00:00:00:09\n",
            &format!("carina_card 02:ff:00:00:00:01 {own}\n"),
            "carina_file 600 aGk= /etc/it's\n",
            r"( eval 'echo '\''a'\''' ) >/dev/console",
            "own || exit 7\n",
            "setsid sh /sbin/keep-node",
        ] {
            assert!(script.contains(want), "{want} is not in {script}");
        }
        assert!(!script.contains("02:ff:00:00:00:02"), "{script}");
        assert_ne!(machine.identity().unwrap(), script, "the seed is the same");
    }
}
