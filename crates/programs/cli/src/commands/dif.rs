//! `carina dif`: creates, joins, leaves, changes and shows DIFs.

mod below;
mod extend;
mod make;
mod map;
mod retract;
mod show;

use carina_api::control::LinkState;
use carina_api::{DifName, LocalName};
use carina_text::table::Table;
use clap::Subcommand;

use super::ipcp::kind_word;
use crate::Shared;
use crate::failure::{Attempt, Outcome};
use crate::report::{print_json, print_line};

/// Create, join, leave and show DIFs (distributed IPC facilities), networks of RINA
#[derive(Debug, Subcommand)]
pub(crate) enum DifCommand {
    /// Create a normal DIF and its first member on this system
    #[command(
        after_help = "Examples:\n  carina dif create net --over hv.vm1,eth0\n  \
        carina dif create net --over local --policy routing=link-state --address-bytes 4\n  \
        carina dif create safe --over udp0 --auth password:/etc/carina/net.password \\\n      \
        --policy sdu-protection=aead,cipher=aes-256-gcm\n  \
        carina dif create udp.DIF --over inet --ipcp a.IPCP --dialect rlite"
    )]
    Create(make::CreateArgs),
    /// Join a normal DIF: create a member on this system, which enrolls with an existing member
    #[command(after_help = "Examples:\n  carina dif join net --over hv.vm1\n  \
        carina dif join net --over udp0 --via net.host --auth password:net.password\n  \
        carina --wait 1m dif join net --over hv.vm1\n  \
        carina dif join udp.DIF --over inet --ipcp b.IPCP --via a.IPCP --dialect rlite\n\n\
        Without --wait the first failed attempt ends the command and removes the member.")]
    Join(make::JoinArgs),
    /// Add an N-1 DIF to this system's member of a normal DIF, to reach neighbours there
    #[command(
        after_help = "Examples:\n  carina dif extend net --over udp0\n  carina dif extend \
        net --over udp0 --via net.host2\n\nThe member allocates an N-1 flow to a neighbour in \
        the new N-1 DIF, and accepts N-1 flows of others.\nWhen one path to a neighbour fails, \
        PDUs take another. The node refuses the command when the N-1\nDIF does not carry the \
        longest PDU of the DIF."
    )]
    Extend(extend::ExtendArgs),
    /// Remove an N-1 DIF from this system's member of a normal DIF; the member stays in its DIF
    #[command(
        after_help = "Examples:\n  carina dif retract net --over udp0\n  carina --wait \
        10s dif retract net --over udp0\n\nThe member informs its neighbours before the N-1 \
        flows end; PDUs take other paths, and flows of\napplications continue. With --wait, the \
        command ends when no N-1 flow is left in the N-1 DIF. The node\nrefuses the command \
        when the member does not use that N-1 DIF, or uses no other."
    )]
    Retract(retract::RetractArgs),
    /// Leave a normal DIF: this system's member ends, and so do the flows that use it
    #[command(
        after_help = "Examples:\n  carina dif leave net\n  carina dif leave net --ipcp net.b"
    )]
    Leave {
        /// Name of the DIF to leave
        name: DifName,
        /// Name of the member (its IPCP) to end [default: the only member of the DIF on this
        /// system]
        #[arg(long, value_name = "NAME")]
        ipcp: Option<LocalName>,
    },
    /// Remove another member from a DIF; other members refuse to admit it for five minutes
    #[command(
        after_help = "Example:\n  carina dif expel net net.host2\n\nPolicy access-control \
        (parameter `expel`) of both members decides whether a member may be expelled.\nA member \
        of dialect irati can expel only neighbours; dialect rlite cannot expel members."
    )]
    Expel {
        /// Name of the DIF from which to remove the member
        name: DifName,
        /// Name of the member to remove, as `carina dif show` lists it
        member: String,
    },
    /// List the DIFs of this system, in the order in which they are searched for names
    #[command(after_help = "Example:\n  carina dif list")]
    List,
    /// Show a DIF as one member knows it: N-1 DIFs, members, routes, names, QoS cubes, policies
    #[command(
        after_help = "Examples:\n  carina dif show net\n  carina dif show net --member net.host2"
    )]
    Show(show::ShowArgs),
    /// Draw the members of a normal DIF and their links: as text, SVG or Graphviz graph
    #[command(
        after_help = "Examples:\n  carina dif map net\n  carina dif map net --svg net.svg\n  \
        carina dif map net --dot | dot -Tpng > net.png"
    )]
    Map(map::MapArgs),
}

/// Runs a command of `carina dif`.
///
/// # Errors
/// The node refuses or does not run.
pub(crate) fn run(shared: &Shared, command: &DifCommand) -> Outcome {
    match command {
        DifCommand::Create(args) => make::create(shared, args),
        DifCommand::Join(args) => make::join(shared, args),
        DifCommand::Extend(args) => extend::run(shared, args),
        DifCommand::Retract(args) => retract::run(shared, args),
        DifCommand::Leave { name, ipcp } => make::leave(shared, name, ipcp.as_ref()),
        DifCommand::Expel { name, member } => make::expel(shared, name, member),
        DifCommand::List => list(shared),
        DifCommand::Show(args) => show::run(shared, args),
        DifCommand::Map(args) => map::run(shared, args),
    }
}

fn list(shared: &Shared) -> Outcome {
    let difs = shared.control().difs().attempt("listing DIFs")?;
    if shared.json {
        return print_json(&difs);
    }
    let known = shared.control().ipcps().attempt("listing IPC processes")?;
    // A member that has left its DIF is still an IPCP, but in state down.
    let shown = |name: &LocalName| match known.iter().find(|ipcp| ipcp.name == *name) {
        Some(ipcp) if ipcp.state == LinkState::Down => format!("{name} (down)"),
        _ => name.to_string(),
    };
    let mut table = Table::new(["DIF", "TYPE", "DIALECT", "IPCPS", "NAMES"]);
    for dif in difs {
        let ipcps: Vec<String> = dif.ipcps.iter().map(shown).collect();
        let names: Vec<String> = dif.names.iter().map(ToString::to_string).collect();
        let kind = kind_word(dif.kind).to_owned();
        let dialect = dif.dialect.map_or("-", |dialect| dialect.name()).to_owned();
        table.row([
            dif.name.to_string(),
            kind,
            dialect,
            ipcps.join(","),
            names.join(","),
        ]);
    }
    print_line(table)
}
