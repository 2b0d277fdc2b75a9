//! The configuration of a process: which roles it serves, from a TOML file.
//!
//! ```toml
//! keys = "keys"                # paths are relative to the directory of this file
//!
//! [[pip]]
//! name = "uk"
//! listen = "127.0.0.1:7101"    # or dif:NAME
//! store = "uk.db"              # or etcd://ADDRESS,ADDRESS
//! inventory = "uk.toml"
//!
//! [[vnp]]
//! name = "net"
//! listen = "127.0.0.1:7100"
//! store = "net.db"
//! pips = { uk = ["127.0.0.1:7101"] }
//! networks_per_vno = 1000      # largest number of networks of one operator; default 1000
//!
//! [[vno]]
//! name = "acme"
//! listen = "127.0.0.1:7099"
//! store = "acme.db"
//! vnp = "net"
//! vnp_at = ["127.0.0.1:7100"]
//! web = "127.0.0.1:8099"       # optional: address of the operator's web page
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use carina_text::toml_fault::TomlFault;
use carina_vnet::pip::inventory::Inventory;
use carina_vnet::vnp::NETWORKS_PER_VNO;
use carina_vnet::whole::Whole;
use serde::Deserialize;

use crate::calling::address::{Address, AddressError};
use crate::stores::{StoreName, StoreNameError};

/// The roles of a process, with all paths resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// Directory with the certificates and keys of the roles, and with `ca.pem`.
    pub keys: PathBuf,
    /// Settings of each PIP (physical infrastructure provider) that this process serves.
    pub pips: Vec<PipSpec>,
    /// Settings of each VNP (virtual network provider) that this process serves.
    pub vnps: Vec<VnpSpec>,
    /// Settings of each VNO (virtual network operator) that this process serves.
    pub vnos: Vec<VnoSpec>,
}

/// Settings that every role (PIP, VNP or VNO) has: its name, its address and its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Name of the role.
    pub name: String,
    /// Address at which the role listens.
    pub listen: Address,
    /// The store in which the role keeps its state.
    pub store: StoreName,
}

/// Settings of a PIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipSpec {
    /// Name, address and store.
    pub served: Served,
    /// The hosts and links that the PIP owns.
    pub inventory: Inventory,
    /// Loopback address of the PIP's web page; `None` for no page.
    pub web: Option<SocketAddr>,
}

/// Settings of a VNP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnpSpec {
    /// Name, address and store.
    pub served: Served,
    /// The PIPs from which the VNP leases, with the addresses of each PIP's processes.
    pub pips: BTreeMap<String, Vec<Address>>,
    /// Largest number of networks that each VNO may have at a time.
    pub networks_per_vno: usize,
}

/// Settings of a VNO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnoSpec {
    /// Name, address and store.
    pub served: Served,
    /// Name of the VNP that makes the networks of this VNO, as in the VNP's certificate.
    pub vnp: String,
    /// Addresses of the VNP's processes.
    pub vnp_at: Vec<Address>,
    /// Loopback address of the VNO's web page; `None` for no page.
    pub web: Option<SocketAddr>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the configuration or inventory that cannot be read.
        path: PathBuf,
        /// Why the operating system could not read the file.
        source: io::Error,
    },
    /// A file does not have the expected content.
    #[error("{}: line {line}: {text}", path.display())]
    Toml {
        /// Path of the configuration or inventory with the fault.
        path: PathBuf,
        /// Number of the first wrong line, counted from 1.
        line: usize,
        /// The key with its value, and what would be right.
        text: String,
    },
    /// The name of a store is invalid.
    #[error("{}: {source}", path.display())]
    Store {
        /// Path of the configuration that names the store.
        path: PathBuf,
        /// What is wrong with the name of the store.
        source: StoreNameError,
    },
    /// The address of a role is invalid.
    #[error("{}: {source}", path.display())]
    Address {
        /// Path of the configuration that contains the address.
        path: PathBuf,
        /// What is wrong with the address of the role.
        source: AddressError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    keys: PathBuf,
    #[serde(default)]
    pip: Vec<PipText>,
    #[serde(default)]
    vnp: Vec<VnpText>,
    #[serde(default)]
    vno: Vec<VnoText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PipText {
    name: String,
    listen: String,
    store: String,
    inventory: PathBuf,
    web: Option<SocketAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VnpText {
    name: String,
    listen: String,
    store: String,
    pips: BTreeMap<String, Vec<String>>,
    #[serde(default = "networks_per_vno")]
    networks_per_vno: usize,
}

fn networks_per_vno() -> usize {
    NETWORKS_PER_VNO
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VnoText {
    name: String,
    listen: String,
    store: String,
    vnp: String,
    vnp_at: Vec<String>,
    web: Option<SocketAddr>,
}

impl Configuration {
    /// Reads a configuration file and the inventories that it names. `node` is the path of the
    /// socket `ipc.sock` of the node for addresses in DIFs.
    ///
    /// # Errors
    /// A file cannot be read, or its content is invalid; the error says where and what.
    pub fn read(path: &Path, node: &Path) -> Result<Configuration, ConfigurationError> {
        let text: Text = toml_of(path)?;
        let directory = path.parent().unwrap_or(Path::new("."));
        let address = |text: &String| {
            Address::new(text, node).map_err(|source| ConfigurationError::Address {
                path: path.to_owned(),
                source,
            })
        };
        let all_of = |texts: Vec<String>| -> Result<Vec<Address>, ConfigurationError> {
            texts.iter().map(address).collect()
        };
        let served = |name: String, listen: String, store: String| {
            let store: StoreName = store.parse().map_err(|source| {
                let path = path.to_owned();
                ConfigurationError::Store { path, source }
            })?;
            Ok::<_, ConfigurationError>(Served {
                name,
                listen: address(&listen)?,
                store: store.within(directory),
            })
        };
        let mut all = Configuration {
            keys: directory.join(text.keys),
            ..Configuration::default()
        };
        for pip in text.pip {
            all.pips.push(PipSpec {
                inventory: inventory(&directory.join(pip.inventory))?,
                served: served(pip.name, pip.listen, pip.store)?,
                web: pip.web,
            });
        }
        for vnp in text.vnp {
            let pips = vnp.pips.into_iter();
            let pips = pips.map(|(name, texts)| Ok((name, all_of(texts)?)));
            all.vnps.push(VnpSpec {
                served: served(vnp.name, vnp.listen, vnp.store)?,
                pips: pips.collect::<Result<_, ConfigurationError>>()?,
                networks_per_vno: vnp.networks_per_vno,
            });
        }
        for vno in text.vno {
            all.vnos.push(VnoSpec {
                served: served(vno.name, vno.listen, vno.store)?,
                vnp: vno.vnp,
                vnp_at: all_of(vno.vnp_at)?,
                web: vno.web,
            });
        }
        Ok(all)
    }
}

/// Reads an inventory file.
///
/// # Errors
/// The file cannot be read, or its content is invalid.
pub fn inventory(path: &Path) -> Result<Inventory, ConfigurationError> {
    toml_of(path)
}

fn toml_of<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ConfigurationError> {
    let text = fs::read_to_string(path).map_err(|source| ConfigurationError::File {
        path: path.to_owned(),
        source,
    })?;
    let whole = toml::Deserializer::parse(&text).map(Whole);
    whole.and_then(T::deserialize).map_err(|error| {
        let TomlFault { line, text } = TomlFault::of(&text, &error);
        let path = path.to_owned();
        ConfigurationError::Toml { path, line, text }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVENTORY: &str = "discovery = \"vnp\"\n[[hosts]]\nname = \"h1\"\ncpus = 4\n\
        memory_mib = 4096\nlocation = \"uk\"\naddress = \"10.9.0.1\"\n";

    const ROLES: &str = "keys = \"k\"\n[[pip]]\nname = \"uk\"\nlisten = \"127.0.0.1:1\"\n\
        store = \"uk.db\"\ninventory = \"uk.toml\"\nweb = \"127.0.0.1:6\"\n\
        [[vnp]]\nname = \"net\"\n\
        listen = \"127.0.0.1:2\"\nstore = \"etcd://127.0.0.1:3\"\n\
        pips = { uk = [\"127.0.0.1:1\"] }\n[[vno]]\nname = \"acme\"\nlisten = \"127.0.0.1:4\"\n\
        store = \"/s/acme.db\"\nvnp = \"net\"\nvnp_at = [\"127.0.0.1:2\"]\n\
        web = \"127.0.0.1:5\"\n";

    #[test]
    fn list_of_an_inventory_that_is_too_long_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("uk.toml");
        let link = "[[links]]\nends = [\"h1\", \"h1\", \"h1\"]\n";
        fs::write(&path, format!("{INVENTORY}{link}")).unwrap();
        let error = inventory(&path).unwrap_err().to_string();
        assert!(
            error.contains("a list of 3 items where 2 belong"),
            "{error}"
        );
    }

    #[test]
    fn file_names_roles_stores_and_inventories() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roles.toml");
        fs::write(&path, ROLES).unwrap();
        fs::write(directory.path().join("uk.toml"), INVENTORY).unwrap();
        let read = Configuration::read(&path, Path::new("/x/ipc.sock")).unwrap();
        assert_eq!(read.keys, directory.path().join("k"));
        assert_eq!(read.pips[0].inventory.hosts[0].location, "uk");
        let store = StoreName::File(directory.path().join("uk.db"));
        assert_eq!(read.pips[0].served.store, store);
        assert!(matches!(&read.vnps[0].served.store, StoreName::Etcd(it) if it.len() == 1));
        let at = Address::Tcp("127.0.0.1:2".to_owned());
        assert_eq!(read.vnos[0].vnp_at, [at]);
        assert_eq!(read.vnos[0].web, Some(([127, 0, 0, 1], 5).into()));
        assert_eq!(read.pips[0].web, Some(([127, 0, 0, 1], 6).into()));
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roles.toml");
        let words = |text: String| {
            fs::write(&path, text).unwrap();
            let read = Configuration::read(&path, Path::new("/x/ipc.sock"));
            read.unwrap_err().to_string()
        };
        let error = words(ROLES.replace("listen", "lisen"));
        assert!(
            error.contains("line 4") && error.contains("lisen"),
            "{error}"
        );
        let error = words(ROLES.to_owned());
        assert!(error.contains("uk.toml"), "{error}");
        fs::write(directory.path().join("uk.toml"), "hosts = 3").unwrap();
        let error = words(ROLES.to_owned());
        assert!(
            error.contains("uk.toml") && error.contains("line 1"),
            "{error}"
        );
        fs::write(directory.path().join("uk.toml"), INVENTORY).unwrap();
        let error = words(ROLES.replace("127.0.0.1:4", "rina:4x"));
        assert!(error.contains("dif:NAME"), "{error}");
        let error = words(ROLES.replace("etcd://127.0.0.1:3", "etcd://there"));
        assert!(error.contains("etcd://ADDRESS:PORT"), "{error}");
    }
}
