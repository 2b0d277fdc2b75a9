//! The key of a template: equal for machines that can share it.

use crate::accel::{self, Accel};
use crate::cache::Cache;
use crate::error::Result;
use crate::hash::Hash;
use crate::machine::Machine;

/// A hash of QEMU's program and arguments, the kernel and the initramfs. With KVM the guest sees
/// the host's processor, so the hash includes the processor's model.
pub(super) fn key(machine: &Machine, accel: Accel, cache: &Cache) -> Result<String> {
    let (args, files) = machine.essence(accel)?;
    let mut hash = Hash::new();
    hash.field(FORMAT);
    hash.field(cache.hash_of(&accel::qemu()?)?.as_bytes());
    for path in &files {
        hash.field(cache.hash_of(path)?.as_bytes());
    }
    for arg in &args {
        hash.field(arg);
    }
    if accel == Accel::Kvm {
        hash.field(rustix::system::uname().release().to_bytes());
        hash.field(accel::processor_model().as_bytes());
    }
    Ok(hash.to_string())
}

/// Version of the contents of templates; incremented when they change.
const FORMAT: &[u8] = b"1";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::machine::Boot;
    use crate::network::{Backend, Model, Nic};

    #[test]
    fn key_is_of_the_kind_and_not_of_the_machine() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let cache = Cache::new(directory.join("cache")).unwrap();
        let (kernel, initramfs) = (directory.join("k"), directory.join("i"));
        fs::write(&kernel, b"kernel").unwrap();
        fs::write(&initramfs, b"initramfs").unwrap();
        let boot = Boot::Direct {
            kernel: kernel.clone(),
            initramfs,
        };
        let card = |tap: &str, last| Nic {
            model: Model::VirtioNet,
            backend: Backend::Tap(tap.into()),
            mac: Some([2, 0, 0, 0, 0, last]),
        };
        let machine = |name: &str| Machine::new(name, directory).unwrap().boot(boot.clone());
        let key = |machine: Machine| key(&machine, Accel::Tcg, &cache).unwrap();
        let one = key(machine("a").nic(card("t0", 1)));
        let like = machine("b")
            .nic(card("t1", 2))
            .command("true")
            .node_config("")
            .dies_with_parent();
        assert_eq!(key(like), one);
        let others = [
            machine("a"),
            machine("a").nic(card("t0", 1)).memory_mib(128),
            machine("a").nic(card("t0", 1)).cpus(2),
            machine("a").nic(card("t0", 1)).ports(1),
            machine("a").nic(card("t0", 1)).parameter("quiet"),
        ];
        for other in others {
            assert_ne!(key(other.clone()), one, "{other:?}");
        }
        fs::write(&kernel, b"another").unwrap();
        assert_ne!(key(machine("a").nic(card("t0", 1))), one);
    }

    #[test]
    fn what_cannot_be_cloned_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::new(directory.path()).unwrap();
        let machine = || {
            let machine = Machine::new("a", "/run/x").unwrap();
            machine.boot(Boot::Direct {
                kernel: "/k".into(),
                initramfs: "/i".into(),
            })
        };
        let vhost_user = Nic {
            model: Model::VirtioNet,
            backend: Backend::VhostUser {
                socket: "/s".into(),
                queues: 1,
                packed: false,
            },
            mac: None,
        };
        let refusals = [
            (machine().boot(Boot::Disk("/d".into())), "boots from a disk"),
            (machine().ivshmem("/s"), "shared-memory device"),
            (machine().nic(vhost_user), "card 0"),
            (machine().file("/f", 0o644, vec![0; 300 << 10]), "262144"),
        ];
        for (machine, why) in refusals {
            let error = key(&machine, Accel::Tcg, &cache).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
