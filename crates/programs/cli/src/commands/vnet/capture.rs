//! `carina vnet capture`: copies the frames that pass one end of a link.

use carina_vnet_host::agent::copied_links;
use carina_vnet_host::link_name::NamedLink;
use carina_vnet_host::{Vnets, port_app_now};

use super::agent::client;
use super::network::report_of;
use super::roles::inside;
use super::roles::operator::OperatorArgs;
use crate::Shared;
use crate::commands::packet_output::OutputArgs;
use crate::commands::trace::copy_links;
use crate::failure::{Attempt, Outcome, failed};
use crate::graph_directory::GraphEntry;

/// Options of `carina vnet capture`: the link whose frames to copy, and where to write them.
#[derive(Debug, clap::Args)]
pub(crate) struct CaptureArgs {
    /// Link to capture: its number, one of its ends (NODE:INTERFACE), or its nodes (NODE,NODE)
    link: String,
    /// Name of the link's network [default: the only network]
    #[arg(long)]
    vnet: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    operator: OperatorArgs,
}

/// Copies frames until the limits of the output are reached or Ctrl-C is pressed.
///
/// # Errors
/// There is no such link, or the file cannot be written.
pub(super) fn run(shared: &Shared, args: &CaptureArgs) -> Outcome {
    if let Some(vno) = args.operator.client(shared)? {
        let vnet = args.vnet.as_deref();
        return inside::capture(shared, &vno, vnet, &args.link, &args.output);
    }
    let report = report_of(shared, args.vnet.as_deref())?;
    let link = NamedLink::find(&report, &args.link).map_err(failed)?;
    let (near, far) = (link.near(), link.far());
    let counters = Vnets::of(&shared.run_dir()).vnet(&report.name).counters();
    // A link on the kernel's path has no frames to copy. An agent of an earlier version reports no
    // path, and has all links in its engine.
    let number = link.link.number;
    let hold = link
        .link
        .path
        .map(|_| client(shared).hold_link(&report.name, number));
    let _hold = hold.transpose().attempt("capturing the link")?;
    let port = port_app_now(&counters, number, link.side);
    let links = copied_links(&port, [near, far]);
    let graph = GraphEntry {
        name: format!("{near} -- {far}"),
        counters,
    };
    copy_links(shared, &graph, links, &args.output)
}
