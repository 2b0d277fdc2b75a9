//! VM ports: the region and the ivshmem sockets of a VM, and the hv IPCP over them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_api::control::{EventKind, VmCreate, VmInfo};
use carina_api::{DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use carina_sys::{Interest, monotonic_ns};
use carina_vmpi::ll::ivshmem::HostPort;

use crate::core::{Core, Token};

/// What an IPCP has when a VM is behind it.
pub struct VmPort {
    port: HostPort,
    create: VmCreate,
    /// The QEMU that was there at the last look.
    qemu: Option<i32>,
}

impl VmPort {
    /// Whether this port is what a configuration asks for.
    pub fn is_as(&self, wanted: &VmCreate) -> bool {
        let dif = |create: &VmCreate| create.dif.clone().or_else(|| default_dif(&create.name));
        let region = |create: &VmCreate| crate::config::check_region(create.region_bytes);
        self.create.name == wanted.name
            && dif(&self.create) == dif(wanted)
            && region(&self.create) == region(wanted)
    }
}

impl Core {
    /// Makes a VM port with its IPCP, or takes over the one of a node that ran before.
    ///
    /// # Errors
    /// The name is taken, the size is not allowed, or the system refuses.
    pub fn create_vm(&mut self, create: VmCreate) -> Result<IpcpId, ErrorBody> {
        let bad = |what| ErrorBody::new(ErrorCode::BadRequest, what);
        let bytes = crate::config::check_region(create.region_bytes).map_err(bad)?;
        self.check_free(&create.name)?;
        let name = create.name.clone();
        let failed = |error: std::io::Error| {
            let what = format!("VM {name}: {error}");
            ErrorBody::new(ErrorCode::Internal, what)
        };
        let dif = create
            .dif
            .clone()
            .or_else(|| default_dif(&name))
            .ok_or_else(|| bad(format!("VM {name}: the name is too long for its DIF's")))?;
        let port =
            HostPort::open(&self.claim.dir().vm_dir(), name.as_str(), bytes).map_err(failed)?;
        let device = port.device().map_err(failed)?;
        let id = self.create_hv(name.clone(), dif, device, None)?;
        if let Err(error) = self
            .epoll
            .add(port.as_fd(), Token::Vm(id).pack(), Interest::Read)
        {
            self.remove_ipcp(id, "its sockets cannot be watched");
            port.destroy();
            return Err(failed(error));
        }
        if let Err(error) = self.claim.note_vm(&create) {
            tracing::warn!(%error, "a node started later will not know this VM");
        }
        if let Some(ipcp) = self.ipcps.get_mut(&id) {
            ipcp.vm = Some(VmPort {
                port,
                create,
                qemu: None,
            });
        }
        Ok(id)
    }

    /// Takes over the VMs of a former node whose QEMU still runs, and removes what is left of
    /// the others.
    ///
    /// # Errors
    /// The directory of VMs cannot be swept.
    pub fn adopt_vms(&mut self) -> Result<(), crate::rundir::ClaimError> {
        for create in self.claim.noted_vms() {
            let name = create.name.clone();
            if self.ipcp_named(name.as_str()).is_some() {
                continue;
            }
            match self.create_vm(create) {
                Ok(id) => {
                    let vm = self.ipcps.get(&id).and_then(|ipcp| ipcp.vm.as_ref());
                    if vm.is_some_and(|vm| vm.port.qemu_pid().is_none()) {
                        self.remove_ipcp(id, "its QEMU has ended");
                    }
                }
                Err(error) => tracing::warn!(%error, %name, "a VM is not taken over"),
            }
        }
        self.claim.sweep_vms(|name| self.vm_named(name).is_some())
    }

    /// Lets go of the port of a VM; `keeps` leaves region and state for the next node.
    pub fn remove_vm(&mut self, name: &LocalName, vm: VmPort, keeps: bool) {
        if let Err(error) = self.epoll.del(vm.port.as_fd()) {
            tracing::warn!(%error, %name, "the sockets of a VM were not watched");
        }
        if !keeps {
            self.claim.forget_vm(name);
            vm.port.destroy();
        }
    }

    /// Something happened on the sockets of a VM.
    pub fn read_vm(&mut self, id: IpcpId) {
        if let Some(vm) = self.ipcps.get_mut(&id).and_then(|ipcp| ipcp.vm.as_mut()) {
            vm.port.on_readable();
        }
    }

    /// Looks for QEMUs that listen, and notes those that came and went.
    pub fn visit_vms(&mut self) {
        let now = monotonic_ns();
        for ipcp in self.ipcps.values_mut() {
            let Some(vm) = &mut ipcp.vm else { continue };
            vm.port.on_tick(now);
            let qemu = vm.port.qemu_pid();
            if qemu == vm.qemu {
                continue;
            }
            if let Some(pid) = vm.qemu {
                self.journal.note(
                    EventKind::VmDetached,
                    &ipcp.name,
                    format!("QEMU {pid} ended"),
                );
            }
            if let Some(pid) = qemu {
                self.journal
                    .note(EventKind::VmAttached, &ipcp.name, format!("QEMU {pid}"));
            }
            vm.qemu = qemu;
        }
    }

    /// When a QEMU must be looked for; none while all VMs have theirs.
    pub fn vm_deadline(&self) -> Option<Instant> {
        let mut vms = self.ipcps.values().filter_map(|ipcp| ipcp.vm.as_ref());
        vms.any(|vm| vm.qemu.is_none())
            .then(|| Instant::now() + LOOK)
    }

    /// The VM of that name.
    pub fn vm_named(&self, name: &str) -> Option<IpcpId> {
        self.ipcp_named(name)
            .filter(|id| self.ipcps[id].vm.is_some())
    }

    /// All VMs for `control.sock`.
    pub fn vm_infos(&self) -> Vec<VmInfo> {
        self.made
            .iter()
            .filter_map(|id| self.vm_info(*id))
            .collect()
    }

    /// One VM for `control.sock`.
    pub fn vm_info(&self, id: IpcpId) -> Option<VmInfo> {
        let ipcp = self.ipcps.get(&id)?;
        let vm = ipcp.vm.as_ref()?;
        Some(VmInfo {
            name: ipcp.name.clone(),
            dif: ipcp.dif.clone(),
            region_bytes: vm.port.region_bytes() as u64,
            qemu_socket: vm.port.qemu_socket().into(),
            listen_socket: vm.port.listen_socket().into(),
            qemu_pid: vm.port.qemu_pid().and_then(|pid| u32::try_from(pid).ok()),
            state: ipcp.state,
            vmpi_id: ipcp.vmpi_id.unwrap_or_default(),
            qemu_args: qemu_args(vm),
        })
    }
}

/// The arguments with which QEMU listens for the node.
fn qemu_args(vm: &VmPort) -> Vec<String> {
    let id = format!("carina-{}", vm.create.name);
    // A comma in a QEMU argument is written twice.
    let path = vm
        .port
        .qemu_socket()
        .display()
        .to_string()
        .replace(',', ",,");
    vec![
        "-chardev".into(),
        format!("socket,path={path},id={id},server=on,wait=on"),
        "-device".into(),
        format!("ivshmem-doorbell,vectors=32,chardev={id}"),
    ]
}

fn default_dif(name: &LocalName) -> Option<DifName> {
    DifName::new(format!("hv.{name}")).ok()
}

/// Time between two looks for a QEMU that listens.
const LOOK: Duration = Duration::from_millis(100);
