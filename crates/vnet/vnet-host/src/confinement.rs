//! Confines a virtual machine: control groups with limits (cgroups(7)), a user ID of its own, and a
//! filter of system calls (seccomp(2)).
//!
//! ```text
//!   /sys/fs/cgroup/carina-UID/NODE                       version 2
//!   /sys/fs/cgroup/CONTROLLER/AGENT'S/carina-UID/NODE    version 1
//! ```
//!
//! The QEMU process is in these groups. Groups of version 1 are below the agent's own group, and
//! thus within its limits. Groups of version 2 are not: a group of version 2 that contains
//! processes cannot have child groups with limits. The paths of the groups are written to a file of
//! the network before the groups are made.
//!
//! If the kernel or the agent's privileges do not permit one of these measures, the machine runs
//! without it, and the network's events say so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_vm::{Machine, can_be_user, can_sandbox};
use carina_vnet::host_part::{NodePart, VnetId};
use serde::Serialize;

use crate::error::{Attempt, Result};

/// Which measures confine a machine's QEMU, and which are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Confinement {
    /// User ID of the machine's QEMU process; `None` if QEMU has the same user ID as the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
    /// Whether a seccomp filter limits the system calls of the QEMU process.
    pub is_sandboxed: bool,
    /// Paths of the control groups that contain the QEMU process.
    pub groups: Vec<PathBuf>,
    /// The measures that this host does not permit, each with the reason.
    pub lacks: Vec<String>,
}

/// The user ID for a node's machine, from a range that no system assigns to people, services or
/// containers. Two machines of a host get the same ID with a probability of one in 268 million.
pub fn user_of(vnet: VnetId, node: &str) -> u32 {
    // FNV-1a of 64 bits, folded.
    let bytes = vnet.number().to_le_bytes();
    let hash = bytes
        .iter()
        .chain(node.as_bytes())
        .fold(FNV_OFFSET, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME)
        });
    let folded = (hash ^ (hash >> 32)) as u32;
    USERS + (folded & (USERS_COUNT - 1))
}

/// The user ID of a process; `None` if it is root or unknown.
pub fn user_of_process(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let user = line.split_whitespace().next()?.parse().ok()?;
    (user != 0).then_some(user)
}

/// Sets the parts of a machine's confinement that must be set before it starts: the user ID of its
/// QEMU, and the filter of system calls. A part that this host does not permit is listed in
/// [`Confinement::lacks`].
pub fn confined(mut machine: Machine, user: u32) -> (Machine, Confinement) {
    let mut confinement = Confinement::default();
    match can_be_user(user) {
        None => {
            machine = machine.user(user);
            confinement.user = Some(user);
        }
        Some(why) => confinement.lacks.push(format!("a user of its own: {why}")),
    }
    match can_sandbox() {
        None => {
            machine = machine.sandboxed();
            confinement.is_sandboxed = true;
        }
        Some(why) => confinement
            .lacks
            .push(format!("refused system calls: {why}")),
    }
    (machine, confinement)
}

impl Confinement {
    /// Text of the event about a machine's confinement.
    pub fn words(&self, node: &str) -> String {
        let user = self.user.map(|user| format!("user {user}"));
        let sandbox = self.is_sandboxed.then(|| "refused system calls".to_owned());
        let groups = self
            .groups
            .iter()
            .map(|path| format!("group {}", path.display()));
        let has: Vec<String> = user.into_iter().chain(sandbox).chain(groups).collect();
        let has = if has.is_empty() {
            "it runs without confinement".to_owned()
        } else {
            format!("confined by {}", has.join(", "))
        };
        if self.lacks.is_empty() {
            format!("node {node}: {has}")
        } else {
            format!("node {node}: {has}; it lacks {}", self.lacks.join("; "))
        }
    }

    /// Moves a machine's process into control groups with the limits of its node. Writes the paths
    /// of the groups to `file` first.
    pub fn hold(&mut self, vnet: VnetId, node: &NodePart, pid: i32, file: &Path) {
        let mut left: BTreeSet<Limit> = Limit::ALL.into_iter().collect();
        for hierarchy in hierarchies() {
            let ours: Vec<Limit> = hierarchy
                .limits
                .iter()
                .copied()
                .filter(|limit| left.contains(limit))
                .collect();
            // A version 1 group is useful only for its limits; the version 2 group also keeps the
            // processes together.
            if ours.is_empty() && !hierarchy.is_unified {
                continue;
            }
            let group = hierarchy.of_network(vnet).join(&node.name);
            let done = note(file, &group)
                .and_then(|()| hierarchy.hold(&group, node, pid, &ours, &mut left));
            match done {
                Ok(()) => self.groups.push(group),
                Err(error) => self.lacks.push(format!("a group: {error}")),
            }
        }
        for limit in left {
            let why = "this host has no cgroup controller for it that root may use";
            self.lacks
                .push(format!("a limit of {}: {why}", limit.word()));
        }
    }
}

/// Removes the groups listed in a file. Their processes must have ended.
///
/// # Errors
/// A group still has a process after two seconds.
pub fn remove_groups(file: &Path) -> Result<()> {
    let deadline = Instant::now() + REMOVAL;
    let groups = groups(file)?;
    let mut above = BTreeSet::new();
    for group in &groups {
        remove(group, deadline)?;
        above.extend(group.parent());
    }
    above
        .into_iter()
        .try_for_each(|whole| remove(whole, deadline))
}

/// Paths of the control groups listed in a file, whether the groups exist or not.
///
/// # Errors
/// The file cannot be read.
pub fn groups(file: &Path) -> Result<BTreeSet<PathBuf>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        text => text.attempt(format!("reading {}", file.display()))?,
    };
    Ok(text.lines().map(PathBuf::from).collect())
}

fn note(file: &Path, group: &Path) -> Result<()> {
    let what = || format!("writing {}", file.display());
    let opened = fs::OpenOptions::new().append(true).create(true).open(file);
    let line = format!("{}\n", group.display());
    opened
        .attempt(what())?
        .write_all(line.as_bytes())
        .attempt(what())
}

/// A resource that a control group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Processors,
    Memory,
}

impl Limit {
    const ALL: [Limit; 2] = [Limit::Processors, Limit::Memory];

    fn word(self) -> &'static str {
        match self {
            Limit::Processors => "processors",
            Limit::Memory => "memory",
        }
    }

    fn controller(self) -> &'static str {
        match self {
            Limit::Processors => "cpu",
            Limit::Memory => "memory",
        }
    }

    /// The file of the limit in a group's directory and the value to write; `is_unified` chooses
    /// version 2.
    fn setting(self, node: &NodePart, is_unified: bool) -> (&'static str, String) {
        let quota = u64::from(node.cpus) * PERIOD_US;
        let bytes = (node.memory_mib + OVERHEAD_MIB) << 20;
        match (self, is_unified) {
            (Limit::Processors, true) => ("cpu.max", format!("{quota} {PERIOD_US}")),
            (Limit::Processors, false) => ("cpu.cfs_quota_us", quota.to_string()),
            (Limit::Memory, true) => ("memory.max", bytes.to_string()),
            (Limit::Memory, false) => ("memory.limit_in_bytes", bytes.to_string()),
        }
    }
}

/// A mounted hierarchy of control groups: the single one of version 2, or one of version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    root: PathBuf,
    is_unified: bool,
    limits: Vec<Limit>,
}

impl Hierarchy {
    fn of_network(&self, vnet: VnetId) -> PathBuf {
        self.root.join(format!("carina-{vnet}"))
    }

    /// Makes a group, sets those limits that the kernel accepts, and moves a process into the
    /// group.
    fn hold(
        &self,
        group: &Path,
        node: &NodePart,
        pid: i32,
        ours: &[Limit],
        left: &mut BTreeSet<Limit>,
    ) -> Result<()> {
        let what = || format!("making the group {}", group.display());
        fs::create_dir_all(group).attempt(what())?;
        for limit in ours {
            if self.is_unified {
                // If a controller is not enabled for subgroups, the file written below does not
                // exist.
                for above in group.ancestors().skip(1).take(2) {
                    let word = format!("+{}", limit.controller());
                    let _ = fs::write(above.join("cgroup.subtree_control"), word);
                }
            }
            let (file, value) = limit.setting(node, self.is_unified);
            if fs::write(group.join(file), value).is_ok() {
                left.remove(limit);
            }
        }
        fs::write(group.join("cgroup.procs"), pid.to_string()).attempt(what())
    }
}

/// The hierarchies of this host that have limits; version 2 first.
fn hierarchies() -> Vec<Hierarchy> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let controllers =
        |root: &Path| fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    hierarchies_in(&text, &own, controllers)
}

fn hierarchies_in(
    mounts: &str,
    own: &str,
    controllers: impl Fn(&Path) -> String,
) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mounts.lines() {
        // The format of proc(5): `36 35 98:0 /root /mount options [more] - type source options`
        let Some((place, kind)) = line.split_once(" - ") else {
            continue;
        };
        let mut place = place.split(' ').skip(3);
        let (Some("/"), Some(mount)) = (place.next(), place.next()) else {
            continue;
        };
        let mut kind = kind.split(' ');
        let is_unified = match kind.next() {
            Some("cgroup2") => true,
            Some("cgroup") => false,
            _ => continue,
        };
        let root = PathBuf::from(mount);
        let (root, words) = if is_unified {
            (root.clone(), controllers(&root))
        } else {
            let words = kind.nth(1).unwrap_or_default().replace(',', " ");
            (root.join(own_group(own, &words)), words)
        };
        let has = |limit: &Limit| {
            words
                .split_whitespace()
                .any(|word| word == limit.controller())
        };
        let limits: Vec<Limit> = Limit::ALL.into_iter().filter(has).collect();
        let is_known = found.iter().any(|candidate| candidate.root == root);
        if !is_known && (is_unified || !limits.is_empty()) {
            found.push(Hierarchy {
                root,
                is_unified,
                limits,
            });
        }
    }
    found.sort_by_key(|tree| !tree.is_unified);
    found
}

/// The group of this process in the version 1 hierarchy that has these controllers.
fn own_group<'a>(own: &'a str, words: &str) -> &'a Path {
    // The format of cgroups(7): `4:memory:/user/joe`, `3:cpu,cpuacct:/`
    let mut lines = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let is_it = |controllers: &str| {
        let mut all = controllers.split(',').filter(|piece| !piece.is_empty());
        all.next()
            .is_some_and(|first| words.split(' ').any(|piece| piece == first))
    };
    let found = lines.find(|(controllers, _)| is_it(controllers));
    Path::new(found.map_or("", |(_, path)| path.trim_start_matches('/')))
}

fn remove(group: &Path, deadline: Instant) -> Result<()> {
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            // A killed process stays in its group until it has released its memory.
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            removed => return removed.attempt(format!("removing the group {}", group.display())),
        }
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// The first user ID; systemd(1) and useradd(8) assign none from here to 2^31 - 1.
const USERS: u32 = 0x7000_0000;
const USERS_COUNT: u32 = 0x1000_0000;
const PERIOD_US: u64 = 100_000;
/// Memory that QEMU needs in addition to its guest's, mostly for translated code, MiB.
const OVERHEAD_MIB: u64 = 512;
const REMOVAL: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn hierarchies_are_found_among_mounts() {
        let mounts = "10 2 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      11 3 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      12 3 0:30 / /sys/fs/cgroup/both rw shared:1 - cgroup cgroup \
                      rw,memory,cpuset\n\
                      13 3 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
                      14 3 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "3:cpu:/\n2:cpuset,memory:/of/agent\n0::/\n";
        let found = hierarchies_in(mounts, own, |_| "hugetlb memory\n".to_owned());
        let words: Vec<String> = found
            .iter()
            .map(|tree| format!("{} {:?}", tree.root.display(), tree.limits))
            .collect();
        assert_eq!(
            words,
            [
                "/sys/fs/cgroup/unified [Memory]",
                "/sys/fs/cgroup/cpu/ [Processors]",
                "/sys/fs/cgroup/both/of/agent [Memory]",
            ]
        );
        assert!(hierarchies_in("", "", |_| String::new()).is_empty());
    }

    #[test]
    fn group_gets_limits_and_process_of_its_node() {
        let root = tempfile::tempdir().unwrap();
        let whole = part(&["a b"]);
        let node = whole.node("a").unwrap();
        let hierarchy = Hierarchy {
            root: root.path().to_owned(),
            is_unified: true,
            limits: Limit::ALL.to_vec(),
        };
        let mut left: BTreeSet<Limit> = Limit::ALL.into_iter().collect();
        let group = hierarchy.of_network(whole.vnet).join("a");
        hierarchy
            .hold(&group, node, 42, &Limit::ALL, &mut left)
            .unwrap();
        assert!(left.is_empty());
        let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(read("cpu.max"), "100000 100000");
        assert_eq!(read("memory.max"), (640_u64 << 20).to_string());
        assert_eq!(read("cgroup.procs"), "42");
        assert_eq!(group, root.path().join("carina-0000000000000005/a"));
        let file = root.path().join("groups");
        note(&file, &group).unwrap();
        assert_eq!(groups(&file).unwrap(), BTreeSet::from([group]));
        assert!(groups(&root.path().join("none")).unwrap().is_empty());
    }

    #[test]
    fn machines_have_users_that_no_one_else_has() {
        let users: BTreeSet<u32> = (0..1000)
            .map(|number| user_of(VnetId::new(7 * number), "r1"))
            .collect();
        assert_eq!(users.len(), 1000);
        assert!(
            users
                .iter()
                .all(|user| (USERS..=0x7fff_ffff).contains(user))
        );
    }
}
