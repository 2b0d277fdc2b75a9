//! Guests: kernel and initramfs, QEMU command lines, QMP, commands inside the guest.
//!
//! A guest consists of a stock Linux kernel of the host's own distribution (downloaded and
//! unpacked, never installed), an initramfs that this crate builds, and stock QEMU. Nothing is
//! patched, and nothing needs root.
//!
//! ```no_run
//! # fn main() -> Result<(), carina_vm::Error> {
//! use carina_vm::{Boot, Cache, Image, Machine};
//!
//! let cache = Cache::default_location()?;
//! let image = Image::new().node(std::path::Path::new("target/release/carina"))?;
//! let boot = Boot::prepare(&cache, &image)?;
//! let mut vm = Machine::new("a", "/run/carina/vm")?
//!     .boot(boot)
//!     .ivshmem("/run/carina/vm/a.ivshmem")
//!     .node_config("[[ipcp]]\nname = \"hv0\"\ntype = \"hv\"\nside = \"guest\"\n")
//!     .start(&cache)?;
//! assert_eq!(vm.run("uname -s")?.text(), "Linux");
//! # Ok(()) }
//! ```
//!
//! The order of a start matters: QEMU listens on the ivshmem socket and runs no guest instruction
//! until the node has connected to it. So the VM is announced to the node first (`POST /v1/vms`),
//! and the path in the node's answer is passed to [`Machine::ivshmem`].
//!
//! [`Machine::start_clone`] starts a machine as a clone of a guest that has already booted, in a
//! fraction of the time. [`Templates`] keeps the saved guests.
//!
//! This crate does not talk to the node (it takes a socket path), does not set up bridges or taps
//! (it takes an interface name), and does not trust a guest's output (see [`shell`]).

#![forbid(unsafe_code)]

mod accel;
mod cache;
mod clone;
mod cloud_seed;
mod command;
mod cpio;
mod elf;
mod error;
mod external_vm;
mod guest;
mod guest_image;
mod hardware;
mod hash;
mod image;
mod kernel;
mod lock;
mod machine;
mod modules;
mod moving;
mod moving_disk;
mod network;
mod pool;
mod qmp;
mod running;
pub mod shell;
mod ssh;
mod state;
mod template;
mod tool;
mod vmlinux;
mod xen_domain;
mod xen_host;

pub use accel::{Accel, qemu};
pub use cache::Cache;
pub use cloud_seed::CloudSeed;
pub use command::{Collector, CommandLimits, Finish, Output, PIECE_BYTES, Sink, Stream, run_piped};
pub use cpio::Archive;
pub use elf::{is_static, shared_libraries};
pub use error::Error;
pub use external_vm::libvirt_xml;
pub use guest::{BOOT, Guest};
pub use guest_image::GuestImage;
pub use hardware::{Card, Hardware};
pub use image::{Image, guest_program};
pub use kernel::Kernel;
pub use machine::{Boot, Machine, can_be_user, can_sandbox};
pub use moving::{SavedGuest, guest_state, pause_guest, resume_guest, save_guest, send_guest};
pub use moving_disk::{DiskCopy, DiskSocket, end_disk_copy};
pub use network::{Backend, Model, Nic, NicId, mac_of, mac_text};
pub use pool::Pool;
pub use qmp::{Event, Migration, Qmp, RunState};
pub use running::{Running, Times};
pub use ssh::{SshFiles, SshKeys, await_listener, host_key_alias, ssh_files};
pub use state::{Record, Stopped, kill, list, stop};
pub use template::{Template, TemplateInfo, Templates};
pub use xen_domain::{
    XenDomain, XenKind, destroy_xen_domain, shut_down_xen_domain, xen_domain_lines,
    xen_domain_number, xen_has_pvh,
};
pub use xen_host::XenHost;
