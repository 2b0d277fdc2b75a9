//! Memory near a processor, on machines with several NUMA nodes.

use std::fs;
use std::io;
use std::path::Path;

/// Makes the calling thread allocate memory from the NUMA node of a processor, for pages that the
/// thread is the first to access, while that node has free memory. Does nothing if the machine has
/// one node, or does not report its nodes.
///
/// # Errors
/// The kernel refuses.
pub fn prefer_memory_of_cpu(cpu: usize) -> io::Result<()> {
    let system = Path::new("/sys/devices/system");
    match node_to_prefer(system, cpu) {
        Some(node) => prefer_node(node),
        None => Ok(()),
    }
}

/// Pins the calling thread to a processor, and allocates its memory from that processor's node from
/// now on.
///
/// # Errors
/// The kernel's refusal, with the processor.
pub fn bind_to_cpu(cpu: usize) -> io::Result<()> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("processor {cpu}: {error}"));
    crate::pin_to_cpu(cpu).map_err(at)?;
    prefer_memory_of_cpu(cpu).map_err(at)
}

/// The node of a processor; `None` unless the machine has several nodes.
fn node_to_prefer(system: &Path, cpu: usize) -> Option<usize> {
    let nodes = numbers(&system.join("node"), "node");
    if nodes.len() < 2 {
        return None;
    }
    let of_cpu = numbers(&system.join(format!("cpu/cpu{cpu}")), "node");
    of_cpu.first().copied()
}

/// The numbers behind `prefix` in the names of a directory's entries.
fn numbers(directory: &Path, prefix: &str) -> Vec<usize> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix(prefix)?.parse().ok()
    };
    entries.filter_map(Result::ok).filter_map(number).collect()
}

/// Calls set_mempolicy(2) with `MPOL_PREFERRED`.
fn prefer_node(node: usize) -> io::Result<()> {
    if node >= NODES_MAX {
        let text = format!(
            "NUMA node {node}: the highest possible number is {}",
            NODES_MAX - 1
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut mask = [0u64; NODES_MAX / 64];
    mask[node / 64] = 1 << (node % 64);
    // The kernel uses one bit less than the number given.
    let bits = NODES_MAX + 1;
    // SAFETY: the kernel reads `NODES_MAX` bits of the mask, which outlives the call.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            bits,
        )
    };
    match refused {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

const NODES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_node_is_preferred_only_if_several_exist() {
        let path = std::env::temp_dir().join(format!("carina-numa-{}", std::process::id()));
        let make = |name: &str| fs::create_dir_all(path.join(name)).unwrap();
        make("node/node0");
        make("cpu/cpu3/node0");
        assert_eq!(node_to_prefer(&path, 3), None);
        make("node/node2");
        make("node/power");
        make("cpu/cpu9/node2");
        assert_eq!(node_to_prefer(&path, 3), Some(0));
        assert_eq!(node_to_prefer(&path, 9), Some(2));
        assert_eq!(node_to_prefer(&path, 77), None);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn kernel_takes_the_policy() {
        std::thread::spawn(|| match prefer_node(0) {
            // Kernels without NUMA support do not have the call.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {}
            outcome => outcome.unwrap(),
        })
        .join()
        .unwrap();
        let error = prefer_node(NODES_MAX).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the highest possible number is 1023")
        );
    }
}
