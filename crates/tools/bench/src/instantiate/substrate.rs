//! Hosts on one network segment, providers that each own one host, and the roles between them and
//! an operator.
//!
//! ```text
//!   operator --- VNO --- VNP --- PIP p1 ... PIP pN         processes in this namespace
//!                                 |           |            bridge `offices`, 10.8.0.0/24
//!                              agent h1 ... agent hN       each in a namespace of its own
//!                                 |           |
//!                                 +-----------+            bridge `segment`: tunnels
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use carina_namespaces::{Namespace, NamespaceAccess};
use carina_vnet::pip::inventory::Discovery;
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::identity::{Identity, Role};
use carina_vnet_roles::keys::KeyDir;
use carina_vnet_roles::operator::Client;

use super::case::{MEMORY_MIB, NODES, discovery_name, location};
use crate::error::{Attempt, Error, Result};
use crate::program::Program;

/// The segment, the hosts, and all roles except the agents. Dropping the value ends them.
pub(super) struct Substrate {
    directory: PathBuf,
    keys: PathBuf,
    hosts: Vec<Namespace>,
    /// The PIPs and the VNO.
    _others: Vec<Program>,
    vnp: Program,
}

impl Substrate {
    /// Makes the hosts, each with a provider of its own, and starts the roles. Their files are in
    /// `directory`.
    pub(super) fn start(
        directory: &Path,
        providers: usize,
        discovery: Discovery,
    ) -> Result<Substrate> {
        let keys = directory.join("keys");
        make_keys(&KeyDir::new(&keys), providers)?;
        let hosts = make_hosts(providers)?;
        let roles = Roles {
            directory,
            keys: &keys,
        };
        let mut others = Vec::new();
        for provider in 0..providers {
            let name = pip(provider);
            let inventory = directory.join(format!("{name}.toml"));
            let text = inventory_of(provider, providers, discovery);
            fs::write(&inventory, text).attempt(format!("writing {}", inventory.display()))?;
            let inventory = inventory.to_string_lossy();
            others.push(roles.start(Role::Pip, &name, &["--inventory", &inventory])?);
        }
        let parties =
            (0..providers).map(|number| format!("{0}={1}", pip(number), listens(&pip(number))));
        let words: Vec<String> = parties
            .flat_map(|party| ["--pip".to_owned(), party])
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let vnp = roles.start(Role::Vnp, VNP, &words)?;
        let party = format!("{VNP}={}", listens(VNP));
        others.push(roles.start(Role::Vno, VNO, &["--vnp", &party])?);
        Ok(Substrate {
            directory: directory.to_owned(),
            _others: others,
            vnp,
            hosts,
            keys,
        })
    }

    /// Starts the agent of a provider's host in its run directory, with a pool of `pool` VMs.
    pub(super) fn start_agent(&self, provider: usize, pool: usize) -> Result<Program> {
        let (host, pool) = (host(provider), pool.to_string());
        let party = format!("{}={}", pip(provider), listens(&pip(provider)));
        let keys = self.keys.to_string_lossy();
        let words = ["vnet", "agent", "--host", &host, "--underlay", UNDERLAY];
        let rest = ["--pip", &party, "--keys", &keys, "--pool", &pool];
        let words = [&words[..], &rest[..]].concat();
        Program::start_in(Some(&self.hosts[provider]), &self.run_dir(provider), &words)
    }

    /// The run directory of the host of a provider.
    pub(super) fn run_dir(&self, provider: usize) -> PathBuf {
        self.directory.join(host(provider))
    }

    /// Process id of the VNP.
    pub(super) fn vnp(&self) -> u32 {
        self.vnp.id()
    }

    /// A client of the VNO.
    pub(super) fn operator(&self) -> Result<Client> {
        let keys = KeyDir::new(&self.keys);
        let client = Client::new(&keys, Address::Tcp(listens(VNO)));
        client.attempt("the operator's keys")
    }
}

/// What all roles share: directory of files, and directory of keys.
struct Roles<'a> {
    directory: &'a Path,
    keys: &'a Path,
}

impl Roles<'_> {
    /// Starts a role, and waits until it listens.
    fn start(&self, role: Role, name: &str, rest: &[&str]) -> Result<Program> {
        let (listen, keys) = (listens(name), self.keys.to_string_lossy());
        let words = ["vnet", role.word(), "--name", name, "--listen", &listen];
        let words = [&words[..], &["--keys", &keys], rest].concat();
        let mut program = Program::start(&self.directory.join("roles"), &words)?;
        program.wait_for("serving", START)?;
        Ok(program)
    }
}

fn make_keys(keys: &KeyDir, providers: usize) -> Result<()> {
    let what = || format!("making keys in {}", keys.path().display());
    keys.create_authority().attempt(what())?;
    let of_all = [(Role::Vnp, VNP), (Role::Vno, VNO), (Role::Operator, VNO)];
    let mut parties: Vec<(Role, String)> =
        of_all.map(|(role, name)| (role, name.to_owned())).into();
    for provider in 0..providers {
        parties.push((Role::Pip, pip(provider)));
        parties.push((Role::Agent, host(provider)));
    }
    for (role, name) in parties {
        let party = Identity::new(role, &name);
        let party = party.map_err(|error| Error::NoAnswer(error.to_string()))?;
        keys.issue(&party, 1, keys).attempt(what())?;
    }
    Ok(())
}

/// Makes a namespace for each host, with an interface in each of the two bridges.
fn make_hosts(count: usize) -> Result<Vec<Namespace>> {
    let access = NamespaceAccess::of_root();
    let ip = |line: &str| -> Result<()> {
        access.ip(&line.split(' ').collect::<Vec<_>>())?;
        Ok(())
    };
    ip("link set lo up")?;
    for bridge in ["offices", "segment"] {
        // The bridge of an earlier benchmark may still exist.
        let _ = ip(&format!("link del {bridge}"));
        ip(&format!("link add {bridge} type bridge"))?;
        ip(&format!("link set {bridge} up"))?;
    }
    ip(&format!("addr add {OFFICE}/24 dev offices"))?;
    let mut hosts = Vec::new();
    for provider in 0..count {
        let name = format!("bench-{}", host(provider));
        let namespace = Namespace::new(&name)?;
        for (end, bridge, inside) in [("o", "offices", "office"), ("s", "segment", UNDERLAY)] {
            let end = format!("{end}{}", provider + 1);
            // The kernel removes an old interface with its other end, a while after that end's
            // namespace.
            let _ = ip(&format!("link del {end}"));
            ip(&format!(
                "link add {end} type veth peer name {inside} netns {name}"
            ))?;
            ip(&format!("link set {end} master {bridge} up"))?;
            namespace.ip(&["link", "set", inside, "up"])?;
        }
        let address = format!("10.8.0.{}/24", provider + 1);
        namespace.ip(&["addr", "add", &address, "dev", "office"])?;
        hosts.push(namespace);
    }
    Ok(hosts)
}

/// The inventory of a provider: a host, and a border to each neighbour in the ring of providers.
fn inventory_of(provider: usize, providers: usize, discovery: Discovery) -> String {
    let (host, location) = (host(provider), location(provider));
    let (nodes, discovery) = (*NODES.end(), discovery_name(discovery));
    let memory = nodes as u64 * u64::from(MEMORY_MIB);
    let address = format!("10.9.{}.1", 2 * provider + 1);
    let mut text = format!(
        "discovery = \"{discovery}\"\n[[hosts]]\nname = \"{host}\"\ncpus = {nodes}\n\
         memory_mib = {memory}\nlocation = \"{location}\"\naddress = \"{address}\"\n\
         tunnel_addresses = {TUNNEL_ADDRESSES}\n"
    );
    let borders = borders(providers);
    for (number, ends) in borders.iter().enumerate() {
        if ends.contains(&provider) {
            text.push_str(&format!(
                "[[borders]]\nname = \"b{number}\"\nhost = \"{host}\"\nrate_bps = 10_000_000_000\n"
            ));
        }
    }
    text
}

/// The pairs of neighbours in a ring of providers.
fn borders(providers: usize) -> Vec<[usize; 2]> {
    let count = match providers {
        1 => 0,
        2 => 1,
        more => more,
    };
    (0..count)
        .map(|number| [number, (number + 1) % providers])
        .collect()
}

fn pip(provider: usize) -> String {
    format!("p{}", provider + 1)
}

pub(super) fn host(provider: usize) -> String {
    format!("h{}", provider + 1)
}

/// The address on which a role listens.
fn listens(name: &str) -> String {
    let number = match name {
        VNP => 0,
        VNO => 99,
        pip => pip.trim_start_matches('p').parse().unwrap_or_default(),
    };
    format!("{OFFICE}:{}", 7100_u16 + number)
}

const VNP: &str = "net";
const VNO: &str = "acme";
/// IP address of all roles except agents.
const OFFICE: &str = "10.8.0.254";
/// Name of a host's interface to the other hosts.
const UNDERLAY: &str = "wire";
/// Addresses that each host has for its tunnels: each node of the largest ring may have two. They
/// follow the host's own and end before the next host's, 512 addresses further.
const TUNNEL_ADDRESSES: u32 = 2 * *NODES.end() as u32;
/// How long a role may take until it listens.
const START: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn providers_are_neighbours_on_a_ring() {
        assert!(borders(1).is_empty());
        assert_eq!(borders(2), [[0, 1]]);
        assert_eq!(borders(4), [[0, 1], [1, 2], [2, 3], [3, 0]]);
        let all = (0..8).map(|number| listens(&pip(number)));
        let all: BTreeSet<String> = all.chain([listens(VNP), listens(VNO)]).collect();
        assert_eq!(all.len(), 10);
        let text = inventory_of(1, 3, Discovery::Abstract);
        assert_eq!(text.matches("[[borders]]").count(), 2, "{text}");
    }
}
