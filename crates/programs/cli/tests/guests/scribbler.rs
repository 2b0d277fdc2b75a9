//! A guest that writes where it must not. It runs inside a guest; `faults` starts it.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

use carina_sys::Mapping;

/// Maps the shared region.
fn region() -> Mapping {
    let device = std::fs::read_dir("/sys/bus/pci/devices")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            let id = |file: &str| std::fs::read_to_string(path.join(file)).unwrap();
            id("vendor").trim() == "0x1af4" && id("device").trim() == "0x1110"
        })
        .expect("the guest has an ivshmem device");
    let bar: PathBuf = device.join("resource2");
    let bytes = usize::try_from(bar.metadata().unwrap().len()).unwrap();
    let file = File::options().read(true).write(true).open(&bar).unwrap();
    Mapping::shared(file.as_fd(), 0, bytes).unwrap()
}

/// Writes once, to the index that tells how far the guest has read the host's ring.
#[test]
#[ignore = "part of another test"]
fn read_index_of_the_hosts_ring() {
    use std::sync::atomic::Ordering;
    let head = region();
    head.atomic_u64(0x1180)
        .store(0xdead_0000_0001, Ordering::Relaxed);
}

/// Repeatedly writes noise over every byte of the shared region, rings and headers included.
#[test]
#[ignore = "part of another test"]
fn every_byte_of_the_region() {
    let mapping = region();
    let bytes = mapping.len();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut page = vec![0; 4096];
    for round in 0..3 {
        for offset in (0..bytes).step_by(page.len()) {
            for word in page.chunks_exact_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            mapping.write(offset, &page);
        }
        println!("round {round}: wrote {bytes} bytes");
    }
}
