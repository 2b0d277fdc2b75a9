//! `carina vnet serve`, `pip`, `vnp`, `vno`: serves roles of virtual networks in this process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use carina_vnet::timing::Timing;
use carina_vnet::vnp::NETWORKS_PER_VNO;
use carina_vnet_roles::calling::address::Address;
use carina_vnet_roles::configuration::{
    Configuration, PipSpec, Served, VnoSpec, VnpSpec, inventory,
};
use carina_vnet_roles::roles::{Lines, Roles};
use carina_vnet_roles::stores::StoreName;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, refused, usage};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::progress;

pub(super) mod draining;
pub(super) mod grants;
pub(super) mod inside;
pub(super) mod keys;
pub(super) mod operator;

/// Options that `carina vnet pip`, `vnp` and `vno` share: name, address, store and keys of the
/// role.
#[derive(Debug, clap::Args)]
pub(super) struct ServedArgs {
    /// Name of the role, as in its certificate, such as uk
    #[arg(long)]
    name: String,
    /// Address to listen on: ADDRESS:PORT, or dif:NAME for flows of a DIF
    #[arg(long, value_name = "ADDRESS")]
    listen: String,
    /// Where to store the state of the role: a file, or etcd://ADDRESS:PORT,... [default: file
    /// NAME.ROLE.db in the run directory]
    #[arg(long, value_name = "STORE")]
    store: Option<StoreName>,
    /// Directory with the certificate and key of the role (made by `carina vnet keys issue`)
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
}

/// Options of `carina vnet pip`: where the PIP listens, its keys, and the hosts that it has.
#[derive(Debug, clap::Args)]
pub(crate) struct PipArgs {
    #[command(flatten)]
    served: ServedArgs,
    /// TOML file that lists the PIP's hosts, the links between them, and the borders (links to
    /// other PIPs); see docs/reference/vnet-roles.md
    #[arg(long, value_name = "FILE")]
    inventory: PathBuf,
    /// Serve a read-only web page at this loopback address, such as 127.0.0.1:8098 [default: no
    /// page]
    ///
    /// The page shows the PIP's hosts, and the virtual networks' nodes that run on each of them.
    #[arg(long, value_name = "ADDRESS:PORT")]
    web: Option<SocketAddr>,
}

/// Options of `carina vnet vnp`: where the VNP listens, its keys, and the PIPs that it uses.
#[derive(Debug, clap::Args)]
pub(crate) struct VnpArgs {
    #[command(flatten)]
    served: ServedArgs,
    /// PIP on whose hosts and links the VNP makes networks: its name, and the address of each
    /// process that runs this PIP, such as uk=192.0.2.1:7101,192.0.2.2:7101; may be repeated
    #[arg(long, value_name = "NAME=ADDRESS,...", required = true)]
    pip: Vec<Party>,
    /// Largest number of networks that each VNO may have at a time; the VNP refuses further
    /// networks
    #[arg(long, value_name = "COUNT", default_value_t = NETWORKS_PER_VNO)]
    networks_per_vno: usize,
}

/// Options of `carina vnet vno`: where the VNO listens, its keys, and the VNP that it uses.
#[derive(Debug, clap::Args)]
pub(crate) struct VnoArgs {
    #[command(flatten)]
    served: ServedArgs,
    /// VNP that makes the networks: its name, and the address of each process that runs this VNP,
    /// such as net=192.0.2.1:7100,192.0.2.2:7100
    #[arg(long, value_name = "NAME=ADDRESS,...")]
    vnp: Party,
    /// Serve a web page at this loopback address, such as 127.0.0.1:8099 [default: no page]
    ///
    /// The page shows the networks of this VNO.
    #[arg(long, value_name = "ADDRESS:PORT")]
    web: Option<SocketAddr>,
}

/// A role that this process calls: its name, and the address of each process that runs the role.
#[derive(Clone, Debug)]
pub(super) struct Party {
    /// Name of the role.
    pub name: String,
    addresses: Vec<String>,
}

impl Party {
    /// The addresses of the role's processes.
    ///
    /// # Errors
    /// A text is not an address.
    pub(super) fn addresses(&self, shared: &Shared) -> Result<Vec<Address>, Failure> {
        let texts = self.addresses.iter();
        texts.map(|text| address(shared, text)).collect()
    }
}

/// Parses the address of a role: `HOST:PORT` for TCP, or `dif:NAME` for flows of the DIF `NAME`.
/// Flows use the node of the run directory.
///
/// # Errors
/// The text is not an address.
pub(super) fn address(shared: &Shared, text: &str) -> Result<Address, Failure> {
    Address::new(text, &shared.run_dir().ipc_sock()).map_err(usage)
}

impl std::str::FromStr for Party {
    type Err = String;

    fn from_str(text: &str) -> Result<Party, String> {
        let wrong = || {
            "write NAME=ADDRESS:PORT or NAME=dif:DIF, with a comma between several addresses"
                .to_owned()
        };
        let (name, addresses) = text.split_once('=').ok_or_else(wrong)?;
        let addresses: Vec<String> = addresses.split(',').map(str::to_owned).collect();
        if name.is_empty() || addresses.iter().any(|address| !address.contains(':')) {
            Err(wrong())
        } else {
            Ok(Party {
                name: name.to_owned(),
                addresses,
            })
        }
    }
}

/// Serves the roles that a file names.
///
/// # Errors
/// The file is wrong, or a role cannot be served.
pub(super) fn serve_file(shared: &Shared, file: &Path) -> Outcome {
    let read = Configuration::read(file, &shared.run_dir().ipc_sock());
    serve(&read.map_err(refused)?)
}

/// Serves a PIP.
///
/// # Errors
/// The inventory is wrong, or the role cannot be served.
pub(super) fn pip(shared: &Shared, args: PipArgs) -> Outcome {
    let inventory = inventory(&args.inventory).map_err(refused)?;
    let (keys, served) = args.served.of(shared, "pip")?;
    let pips = vec![PipSpec {
        served,
        inventory,
        web: args.web,
    }];
    let configuration = Configuration {
        keys,
        pips,
        ..Configuration::default()
    };
    serve(&configuration)
}

/// Serves a VNP.
///
/// # Errors
/// The role cannot be served.
pub(super) fn vnp(shared: &Shared, args: VnpArgs) -> Outcome {
    let (keys, served) = args.served.of(shared, "vnp")?;
    let mut pips: BTreeMap<String, Vec<Address>> = BTreeMap::new();
    for pip in args.pip {
        let addresses = pip.addresses(shared)?;
        pips.entry(pip.name).or_default().extend(addresses);
    }
    let vnps = vec![VnpSpec {
        served,
        pips,
        networks_per_vno: args.networks_per_vno,
    }];
    let configuration = Configuration {
        keys,
        vnps,
        ..Configuration::default()
    };
    serve(&configuration)
}

/// Serves a VNO.
///
/// # Errors
/// The role cannot be served.
pub(super) fn vno(shared: &Shared, args: VnoArgs) -> Outcome {
    let (keys, served) = args.served.of(shared, "vno")?;
    let vnos = vec![VnoSpec {
        served,
        vnp_at: args.vnp.addresses(shared)?,
        vnp: args.vnp.name,
        web: args.web,
    }];
    let configuration = Configuration {
        keys,
        vnos,
        ..Configuration::default()
    };
    serve(&configuration)
}

impl ServedArgs {
    fn of(self, shared: &Shared, role: &str) -> Result<(PathBuf, Served), Failure> {
        let store = match self.store {
            Some(store) => store,
            None => {
                let run_dir = shared.run_dir();
                let path = run_dir.path();
                let what = format!("making {}", path.display());
                std::fs::create_dir_all(path).attempt(what)?;
                StoreName::File(path.join(format!("{}.{role}.db", self.name)))
            }
        };
        let served = Served {
            name: self.name,
            listen: address(shared, &self.listen)?,
            store,
        };
        Ok((self.keys, served))
    }
}

fn serve(configuration: &Configuration) -> Outcome {
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let lines: Lines = Arc::new(|line: &str| progress(line));
    let roles = Roles::start(configuration, Timing::default(), &lines);
    let roles = roles.attempt("serving")?;
    for (party, address) in roles.served() {
        progress(format!("{party}: serving {address}"));
    }
    for (party, url) in roles.pages() {
        progress(format!("{party}: open {url} in a browser"));
    }
    while roles.are_served() {
        if interrupt.comes_within(LOOK).attempt(TAKING_SIGNALS)? {
            return Ok(());
        }
    }
    Err(failed("the roles have stopped"))
}

const LOOK: Duration = Duration::from_millis(200);
