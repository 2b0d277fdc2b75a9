//! VM ports: created and destroyed by command, taken over from an earlier node, polled for QEMU.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_api::control::{EventKind, VmCreate, VmInfo};
use carina_api::{ErrorBody, ErrorCode, IpcpId, LocalName};
use carina_sys::{Interest, monotonic_ns};

use crate::core::{Core, Token};
use crate::ipcp_handlers::NewIpcp;
use crate::ipcp_kinds::open_device;
use crate::layers::{Layer, check_doors, layers};
use crate::vm_port::{
    VmPort, check_socket, default_dif, internet_info, internet_of, ip_info, ip_of, open_port,
    qemu_args, region_bytes,
};

impl Core {
    /// Creates a VM port with its IPCP, or takes over that of an earlier node.
    ///
    /// # Errors
    /// The name is in use, the size is invalid, or the operating system refuses.
    pub(crate) fn create_vm(&mut self, create: VmCreate) -> Result<IpcpId, ErrorBody> {
        let bad = |what: String| ErrorBody::new(ErrorCode::BadRequest, what);
        let bytes = region_bytes(&create).map_err(|error| bad(error.to_string()))?;
        check_socket(&create).map_err(|error| bad(format!("VM {}: {error}", create.name)))?;
        self.ipcps.check_name_unused(&create.name)?;
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
        let layer = Layer::of_vm(&create, dif.clone());
        check_doors(&layer, &layers(&self.ipcps))?;
        let vm_dir = self.run_dir_lock.dir().vm_dir();
        let internet = internet_of(&create, &dif);
        let internet = internet.map_err(|error| bad(format!("VM {name}: internet: {error}")))?;
        let ip = ip_of(&create, &dif).map_err(|error| bad(format!("VM {name}: {error}")))?;
        let port = open_port(&vm_dir, &create, bytes).map_err(failed)?;
        let device = port.device().map_err(failed)?;
        let opened = open_device(&name, &self.name, device);
        let id = self.add_ipcp(NewIpcp {
            name: name.clone(),
            dif,
            made_from: None,
            member: None,
            opened,
        })?;
        if let Err(error) = self
            .epoll
            .add(port.as_fd(), Token::Vm(id).pack(), Interest::Read)
        {
            self.remove_ipcp(id, "its sockets cannot be watched");
            port.destroy();
            return Err(failed(error));
        }
        if let Err(error) = self.run_dir_lock.note_vm(&create) {
            tracing::warn!(%error, "a node started later will not know this VM");
        }
        if let Some(ipcp) = self.ipcps.get_mut(id) {
            ipcp.vm = Some(VmPort {
                port,
                create,
                internet,
                ip,
                qemu: None,
            });
        }
        self.serve_wanted();
        self.run_wanted_ip();
        Ok(id)
    }

    /// Takes over the VMs of an earlier node whose QEMU still runs, and removes the files of the
    /// others.
    ///
    /// # Errors
    /// The directory of VMs cannot be cleaned up.
    pub(crate) fn adopt_vms(&mut self) -> Result<(), crate::run_directory::RunDirError> {
        for create in self.run_dir_lock.noted_vms() {
            let name = create.name.clone();
            if self.ipcps.named(name.as_str()).is_some() {
                continue;
            }
            match self.create_vm(create) {
                Ok(id) => {
                    let vm = self.ipcps.get(id).and_then(|ipcp| ipcp.vm.as_ref());
                    if vm.is_some_and(|vm| !vm.port.is_in_use()) {
                        self.remove_ipcp(id, "its VM has ended");
                    }
                }
                Err(error) => tracing::warn!(%error, %name, "a VM of an earlier node could not \
                    be taken over"),
            }
        }
        self.run_dir_lock
            .remove_stale_vms(|name| self.ipcps.vm_named(name).is_some())
    }

    /// Releases the port of a VM; `keeps` leaves its region and state for the next node.
    pub(crate) fn remove_vm(&mut self, name: &LocalName, vm: VmPort, keeps: bool) {
        if let Err(error) = self.epoll.del(vm.port.as_fd()) {
            tracing::warn!(%error, %name, "the sockets of a VM cannot be watched");
        }
        if !keeps {
            self.run_dir_lock.forget_vm(name);
            vm.port.destroy();
        }
        self.serve_wanted();
        self.run_wanted_ip();
    }

    /// Handles activity on the sockets of a VM.
    pub(crate) fn read_vm(&mut self, id: IpcpId) {
        if let Some(vm) = self.ipcps.get_mut(id).and_then(|ipcp| ipcp.vm.as_mut()) {
            vm.port.on_readable();
        }
    }

    /// Detects QEMU processes that appeared or ended, and records them.
    pub(crate) fn poll_vms(&mut self) {
        let now = monotonic_ns();
        for ipcp in self.ipcps.values_mut() {
            let Some(vm) = &mut ipcp.vm else { continue };
            vm.port.on_tick(now);
            let qemu = vm.port.qemu_pid();
            if qemu == vm.qemu {
                continue;
            }
            let what = match vm.create.socket {
                Some(_) => "process",
                None => "QEMU",
            };
            if let Some(pid) = vm.qemu {
                self.journal.note(
                    EventKind::VmDetached,
                    &ipcp.name,
                    format!("{what} {pid} ended"),
                );
            }
            if let Some(pid) = qemu {
                self.journal
                    .note(EventKind::VmAttached, &ipcp.name, format!("{what} {pid}"));
            }
            vm.qemu = qemu;
        }
    }

    /// When to poll for a QEMU process; `None` while all VMs have theirs.
    pub(crate) fn vm_deadline(&self) -> Option<Instant> {
        let mut vms = self.ipcps.values().filter_map(|ipcp| ipcp.vm.as_ref());
        vms.any(|vm| vm.qemu.is_none())
            .then(|| Instant::now() + VM_POLL_INTERVAL)
    }

    /// All VMs, for `control.sock`.
    pub(crate) fn vm_infos(&self) -> Vec<VmInfo> {
        self.ipcps
            .ids()
            .into_iter()
            .filter_map(|id| self.vm_info(id))
            .collect()
    }

    /// One VM, for `control.sock`.
    pub(crate) fn vm_info(&self, id: IpcpId) -> Option<VmInfo> {
        let ipcp = self.ipcps.get(id)?;
        let vm = ipcp.vm.as_ref()?;
        Some(VmInfo {
            name: ipcp.name.clone(),
            dif: ipcp.dif.clone(),
            vmpi: vm.create.vmpi.unwrap_or_default(),
            region_bytes: vm.port.region_bytes() as u64,
            qemu_socket: vm.port.qemu_socket().into(),
            listen_socket: vm.port.listen_socket().map(Into::into),
            qemu_pid: vm.port.qemu_pid().and_then(|pid| u32::try_from(pid).ok()),
            state: ipcp.state,
            internet: vm
                .internet
                .as_ref()
                .map(|door| internet_info(&vm.create, door)),
            ip: vm.ip.as_ref().map(|link| {
                let tun = link.of_host(ipcp.name.as_str()).tun;
                ip_info(&vm.create, link, self.ip_members.error_of(&tun))
            }),
            vmpi_id: ipcp.vmpi_id.unwrap_or_default(),
            qemu_args: qemu_args(vm),
        })
    }
}

/// Interval at which the node polls for QEMU processes.
const VM_POLL_INTERVAL: Duration = Duration::from_millis(100);
