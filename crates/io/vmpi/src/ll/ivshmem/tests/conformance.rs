//! The conformance suite over ivshmem. The host's end is the port with its real server. The guest's
//! end maps the memory that the server sends, and rings by the doorbells that the server sends, in
//! place of a guest behind QEMU.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::conformance::{Device as OpenSide, Fixture, Random, scribble};
use crate::hl::Side;
use crate::ll::device::{Device, Doorbells};
use crate::ll::ivshmem::PlainPort;
use crate::ll::ivshmem::plain::NoDoorbells;
use crate::ll::layout::Layout;

/// A new directory for each fixture of each case.
fn directory(kind: &str) -> Directory {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Directory::new(&format!("conformance-{kind}-{number}"))
}

/// Opens the guest's end of a region.
fn guest(memory: impl AsFd, doorbells: impl Doorbells + 'static) -> OpenSide {
    let layout = Layout::new(REGION).unwrap();
    Box::new(Device::open(Side::Guest, memory.as_fd(), layout, doorbells).unwrap())
}

mod doorbell {
    use super::*;

    struct Behind {
        directory: Directory,
        port: Option<HostPort>,
        was_opened: bool,
        /// The connection of the fake QEMU, its memory and the doorbells of host and guest.
        qemu: Option<(UnixStream, OwnedFd, EventFd, EventFd)>,
    }

    impl Behind {
        fn new() -> Behind {
            let directory = directory("doorbell");
            let mut port = directory.port();
            let qemu = UnixStream::connect(port.listen_socket()).unwrap();
            port.on_readable();
            let (memory, host, guest) = welcome(&qemu);
            Behind {
                directory,
                port: Some(port),
                was_opened: false,
                qemu: Some((qemu, memory, host, guest)),
            }
        }
    }

    struct GuestBells {
        host: EventFd,
        own: EventFd,
    }

    impl Doorbells for GuestBells {
        fn ring(&self, _peer_doorbell: u32) {
            self.host.signal();
        }

        fn can_ring(&self) -> bool {
            true
        }

        fn own(&self) -> Option<&EventFd> {
            Some(&self.own)
        }

        fn can_be_rung(&self) -> bool {
            true
        }

        fn doorbell(&self) -> u32 {
            0
        }

        fn is_attached(&self) -> bool {
            true
        }
    }

    impl Fixture for Behind {
        fn open(&mut self, side: Side) -> OpenSide {
            match (side, &self.qemu) {
                (Side::Host, _) => {
                    // A restarted node adopts the region, because this process still runs. A QEMU
                    // that connected cannot connect again, so both sides then poll.
                    if std::mem::replace(&mut self.was_opened, true) {
                        drop(self.port.take());
                    }
                    let open = || self.directory.port();
                    self.port.get_or_insert_with(open).device().unwrap()
                }
                (Side::Guest, Some((_, memory, host, own))) => {
                    let bells = GuestBells {
                        host: host.try_clone().unwrap(),
                        own: own.try_clone().unwrap(),
                    };
                    guest(memory, bells)
                }
                (Side::Guest, None) => unreachable!("the fake QEMU is connected"),
            }
        }

        fn serve(&mut self) {
            if let Some(port) = &mut self.port {
                port.on_readable();
            }
        }

        fn has_wake_ups(&self) -> bool {
            true
        }

        fn damage(&mut self, _side: Side, random: &mut Random) -> bool {
            let (_, memory, ..) = self.qemu.as_ref().expect("the fake QEMU is connected");
            scribble(memory, REGION, random);
            true
        }
    }

    crate::vmpi_conformance!(Behind::new);
}

mod plain {
    use super::*;

    struct Plain {
        directory: Directory,
        port: Option<PlainPort>,
    }

    impl Plain {
        fn region(&self) -> fs::File {
            let path = self.directory.0.join("vm.region");
            fs::File::options()
                .read(true)
                .write(true)
                .open(path)
                .unwrap()
        }
    }

    impl Fixture for Plain {
        fn open(&mut self, side: Side) -> OpenSide {
            match side {
                // The port stays, as only another process that maps the region keeps it in place.
                Side::Host => {
                    let open = || PlainPort::open(&self.directory.0, "vm", REGION).unwrap();
                    self.port.get_or_insert_with(open).device().unwrap()
                }
                Side::Guest => guest(self.region(), NoDoorbells::default()),
            }
        }

        fn has_wake_ups(&self) -> bool {
            false
        }

        fn damage(&mut self, _side: Side, random: &mut Random) -> bool {
            scribble(self.region(), REGION, random);
            true
        }
    }

    crate::vmpi_conformance!(|| Plain {
        directory: directory("plain"),
        port: None,
    });
}
