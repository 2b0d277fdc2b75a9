//! The seed of a node: a volume `cidata` with three files for cloud-init (NoCloud).

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use carina_namespaces::run_within;
use carina_vnet::host_part::{InterfaceAddress6, NodePart, VnetId};

use crate::error::{Attempt, ImageError, Result};

/// The contents of a seed's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    meta_data: String,
    network_config: String,
    user_data: String,
}

impl Seed {
    /// The seed of a node, with its name and the names, addresses and routes of its interfaces. The
    /// instance ID begins with `instance`. It depends on the interfaces, so that cloud-init
    /// configures changed ones at the next start.
    pub(crate) fn of(instance: VnetId, node: &NodePart, user_data: Option<&str>) -> Seed {
        let network_config = network_config(node);
        let mut hash: u32 = 0;
        for byte in network_config.bytes() {
            hash = hash.wrapping_mul(31).wrapping_add(u32::from(byte));
        }
        let name = &node.name;
        Seed {
            meta_data: format!(
                "instance-id: {instance}-{name}-{hash:08x}\nlocal-hostname: {name}\n"
            ),
            network_config,
            user_data: user_data.unwrap_or("#cloud-config\n{}\n").to_owned(),
        }
    }

    /// Writes the seed as an ISO 9660 volume.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let directory = path.with_extension("seed");
        let what = || format!("writing {}", path.display());
        fs::create_dir_all(&directory).attempt(what())?;
        for (name, text) in [
            ("meta-data", &self.meta_data),
            ("network-config", &self.network_config),
            ("user-data", &self.user_data),
        ] {
            fs::write(directory.join(name), text).attempt(what())?;
        }
        // A QEMU from which the node moves to another may still have the earlier file open.
        let part = path.with_extension("part");
        let made = make(&directory, &part);
        fs::remove_dir_all(&directory).attempt(what())?;
        made?;
        fs::rename(&part, path).attempt(what())
    }
}

/// Makes the volume with the first suitable program that is installed.
fn make(directory: &Path, path: &Path) -> Result<()> {
    let found = PROGRAMS.iter().find(|program| {
        let places = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&places).any(|place| place.join(program).is_file())
    });
    let Some(program) = found else {
        return Err(ImageError::Tool {
            what: format!("writing {}", path.display()),
            reason: format!(
                "none of the programs {} is installed (package genisoimage)",
                PROGRAMS.join(", ")
            ),
        });
    };
    let mut command = Command::new(program);
    command
        .args([
            "-quiet",
            "-volid",
            "cidata",
            "-joliet",
            "-rational-rock",
            "-output",
        ])
        .arg(path)
        .arg(directory);
    let output = run_within(&mut command, program, LIMIT)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(ImageError::Tool {
            what: format!("`{program}` for {}", path.display()),
            reason: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

/// Network configuration for cloud-init, version 2. Names contain only characters that need no
/// escaping in quoted YAML.
fn network_config(node: &NodePart) -> String {
    let mut text = "version: 2\nethernets:\n".to_owned();
    if node.interfaces.is_empty() {
        return "version: 2\nethernets: {}\n".to_owned();
    }
    for interface in &node.interfaces {
        let (name, mac, mtu) = (&interface.name, interface.mac, interface.mtu);
        let all = [
            Some(interface.address.to_string()),
            interface.address6.map(|address6| address6.to_string()),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        let addresses = all.join("\", \"");
        let _ = write!(
            text,
            "  \"{name}\":\n    match: {{macaddress: \"{mac}\"}}\n    set-name: \"{name}\"\n    \
             mtu: {mtu}\n    addresses: [\"{addresses}\"]\n"
        );
        let mut routes: Vec<String> = node
            .routes
            .iter()
            .filter(|route| route.via == interface.peer)
            .map(|route| format!("{{to: \"{}\", via: \"{}\"}}", route.to, route.via))
            .collect();
        let routes6 = node.routes6.iter();
        let here = routes6.filter(|route| {
            let prefix = interface.address6.map(InterfaceAddress6::prefix);
            prefix.is_some_and(|prefix| prefix.has(route.via))
        });
        routes
            .extend(here.map(|route| format!("{{to: \"{}\", via: \"{}\"}}", route.to, route.via)));
        if !routes.is_empty() {
            let _ = writeln!(text, "    routes: [{}]", routes.join(", "));
        }
    }
    text
}

const PROGRAMS: [&str; 3] = ["genisoimage", "mkisofs", "xorrisofs"];
const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use carina_vnet::division::{Placement, divide};
    use carina_vnet::document::{Document, Form};
    use carina_vnet::host_part::HostPart;
    use carina_vnet::layout::Layout;

    use super::*;

    /// The part of a single host with nodes a, b, c and these links.
    pub(crate) fn part(links: &[[&str; 2]]) -> HostPart {
        let mut text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n".to_owned();
        for ends in links {
            text.push_str(&format!("[[link]]\nends = {ends:?}\nrate = \"1Mbps\"\n"));
        }
        let document = Document::read(&text, Form::Toml).unwrap();
        let layout = Layout::of(&document, &Layout::default());
        let placement = Placement {
            hosts: ["a", "b", "c"].map(|node| (node.into(), "h".into())).into(),
            tags: (0..9).map(|number| (number, number)).collect(),
            outer: BTreeMap::new(),
        };
        let mut parts = divide(&document, (VnetId::new(5), 1), &layout, &placement).unwrap();
        parts.remove("h").unwrap()
    }

    #[test]
    fn seed_names_interfaces_by_their_addresses() {
        let whole = part(&[["a", "b"], ["b", "c"]]);
        let node = whole.node("a").unwrap();
        let seed = Seed::of(whole.vnet, node, None);
        let mac = node.interfaces[0].mac;
        assert_eq!(
            seed.network_config,
            format!(
                "version: 2\nethernets:\n  \"eth0\":\n    match: {{macaddress: \"{mac}\"}}\n    \
                 set-name: \"eth0\"\n    mtu: 1480\n    addresses: [\"10.0.0.1/30\"]\n    \
                 routes: [{{to: \"10.0.0.4/30\", via: \"10.0.0.2\"}}]\n"
            )
        );
        assert!(seed.meta_data.contains("local-hostname: a\n"));
        let more = part(&[["a", "b"], ["b", "c"], ["a", "c"]]);
        let other = Seed::of(more.vnet, more.node("a").unwrap(), None);
        assert_ne!(seed.meta_data, other.meta_data);
        assert_eq!(seed, Seed::of(whole.vnet, node, None));
        assert!(seed.user_data.starts_with("#cloud-config\n"));
    }
}
