//! The commands below `carina vnet`, with their help.

use std::path::PathBuf;

use carina_vnet::document::Form;
use clap::Subcommand;

use super::roles::keys::KeysCommand;
use super::roles::operator::OperatorArgs;
use super::{
    access, agent, capture, document, export, image, impair, inside, join, keeping, network, roles,
    switching, top, trace,
};
#[cfg(feature = "tools")]
use super::{bench, demo, import};

/// Make and operate virtual networks of VMs and namespaces, described by documents
#[derive(Debug, Subcommand)]
pub(crate) enum VnetCommand {
    /// Make the network that a document describes, and wait until it is ready
    ///
    /// A network is ready when the console of every node has answered, and probes have passed every
    /// link in both directions. If no agent runs, this command starts one; that agent ends with its
    /// last network.
    #[command(after_help = "Examples:\n  carina vnet up demo.toml\n  \
        carina vnet up demo.toml --web 127.0.0.1:8080\n  \
        carina --json vnet up demo.toml --keep\n\nExit code 3: the document is wrong, or the \
        network does not fit.")]
    Up(network::UpArgs),
    /// Change a network to match its document; nodes and links without a difference stay unchanged
    #[command(after_help = "Example:\n  carina vnet apply demo.toml")]
    Apply(network::ApplyArgs),
    /// Show the changes that `up` or `apply` would make for a document, and whether the network
    /// fits
    ///
    /// Each difference has a mark and a reason. Marks: `+` make, `~` change while it runs, `-` end,
    /// `-/+` end and recreate.
    #[command(after_help = "Examples:\n  carina vnet plan demo.toml\n  \
        carina --json vnet plan demo.toml\n\nThe command changes nothing. Exit code 3: the \
        document is wrong, or the network does not fit.")]
    Plan(document::Source),
    /// Remove a network with its nodes and links, even if its agent was killed
    ///
    /// Without a name it removes the only network. If there are several, it removes none and lists
    /// their names; `--all` removes them all.
    #[command(
        after_help = "Examples:\n  carina vnet down\n  carina vnet down demo\n  \
        carina vnet down --all"
    )]
    Down {
        /// Name of the network to remove [default: the only network]
        name: Option<String>,
        /// Remove all networks
        #[arg(long, conflicts_with = "name")]
        all: bool,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    /// List the networks of this host, or with --vno the networks of that operator
    #[command(after_help = "Example:\n  carina vnet list --json")]
    List(OperatorArgs),
    /// Show nodes and links of a network, and the time of each phase in which the network was made
    #[command(after_help = "Examples:\n  carina vnet status\n  carina --json vnet status demo")]
    Status {
        /// Name of the network to show [default: the only network]
        name: Option<String>,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    /// Show where nodes run on this host: namespaces, processes, ports
    #[command(
        after_help = "Examples:\n  carina vnet where\n  carina vnet where r1 --vnet demo\n\nThe \
        command reads records on disk: the agent need not run."
    )]
    Where {
        /// Name of a virtual network's node: show only this node [default: all nodes]
        node: Option<String>,
        /// Name of a virtual network: show only its nodes [default: all networks]
        #[arg(long)]
        vnet: Option<String>,
    },
    /// Draw a network as SVG, with the states of its nodes and links; or draw a document, without
    /// states
    #[command(after_help = "Examples:\n  carina vnet show demo --svg demo.svg\n  \
        carina vnet show demo.toml --svg demo.svg")]
    Show {
        /// Name of the network to draw, or file of a document: .toml, .xml or .json [default: the
        /// only network]
        #[arg(value_name = "NAME|FILE")]
        name: Option<String>,
        /// Write the drawing to this file [default: standard output]
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    /// Show the events of a network: parts that were made, changed or repaired, and failures
    #[command(after_help = "Examples:\n  carina vnet events\n  carina vnet events demo --follow")]
    Events {
        /// Name of the network whose events to show [default: the only network]
        name: Option<String>,
        /// Show past events, then new events as they happen, until Ctrl-C [default: exit after the
        /// past events]
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    /// Run a command in a VM or namespace of a virtual network; exit with the command's exit code
    #[command(
        after_help = "Examples:\n  carina vnet exec r1 ip address\n  carina vnet exec \
        --vnet demo r1 ping -c 3 10.0.0.2\n\nThe command has no standard input. Its output is \
        printed unchanged as it is produced, whatever its length, also with --json:\nonly \
        errors of `carina vnet exec` itself are JSON. Ctrl-C or a closed standard output ends \
        the command.\n\nWithout --vno, the agent of this host runs the command. With --vno and \
        --keys, the virtual network\noperator (VNO) checks your certificate, and the \
        host of the node runs the command."
    )]
    Exec(inside::ExecArgs),
    /// Connect this terminal to the console of a node
    #[command(
        after_help = "Example:\n  carina vnet console r1\n\nCtrl-] leaves the console. Several \
        users can watch a console; the first one who types can write."
    )]
    Console {
        /// Name of the node whose console to connect to
        node: String,
        /// Name of the node's network [default: the only network]
        #[arg(long)]
        vnet: Option<String>,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    /// Move a running node to another QEMU, for example after an upgrade of QEMU
    ///
    /// The node keeps its memory, connections and console. If a neighbour is a namespace, it sends
    /// 1000 echo requests a second to count the losses. With `--to`, the operator of a provider
    /// moves the node to another host of the provider.
    #[command(
        after_help = "Examples:\n  carina vnet migrate r1\n  carina --json vnet migrate r1 \
        --vnet demo\n  carina vnet migrate r1 --vnet demo --to h2 --pip 127.0.0.1:7101 --keys \
        keys\n\nA node that is a namespace cannot be moved. If the move fails, the node \
        keeps running where it was."
    )]
    Migrate(keeping::MigrateArgs),
    /// Move all nodes of a provider's host to its other hosts, for example before maintenance
    ///
    /// The host takes no new nodes until `undrain`. Nodes move one after another. If a node cannot
    /// move to any host, no node moves, and the command prints each such node with the reason.
    #[command(
        after_help = "Example:\n  carina vnet drain h1 --pip 127.0.0.1:7101 --keys uk\n\n\
        Exit code 3: a node cannot move, and the host takes new nodes as before. Exit code 1: some \
        nodes have not moved; the host takes no new nodes, and the same command resumes."
    )]
    Drain(roles::draining::DrainArgs),
    /// Allow a provider's host to take nodes again after `drain`
    #[command(after_help = "Example:\n  carina vnet undrain h1 --pip 127.0.0.1:7101 --keys uk")]
    Undrain(roles::draining::HostArgs),
    /// Save a running network to a new directory: document, addresses, and the memory of its VMs
    ///
    /// All virtual machines pause at the same time, and resume after the save. A namespace is saved
    /// without its processes: as its entry in the document only.
    #[command(
        after_help = "Example:\n  carina vnet save demo demo.saved\n\nOnly the owner can read \
        the directory, because it contains the memory of machines."
    )]
    Save {
        /// Name of the network to save
        name: String,
        /// Directory to create, such as demo.saved; it must not exist
        directory: PathBuf,
    },
    /// Make a saved network again; its virtual machines resume from their saved state
    #[command(
        after_help = "Example:\n  carina vnet down demo && carina vnet restore demo.saved\n\n\
        The network keeps its addresses. Exit code 3: the directory is damaged, or is not a saved \
        network."
    )]
    Restore {
        /// Directory in which `carina vnet save` saved the network
        directory: PathBuf,
    },
    /// Copy the frames that pass one end of a link, to the screen or into a file
    ///
    /// Frames that the node sends are copied before the link limits their rate; frames that it
    /// receives are copied as they arrive. The link does not wait for the capture: frames that are
    /// not read in time are missing from it, and are counted.
    #[command(
        after_help = "Examples:\n  carina vnet capture r1:eth0\n  carina vnet capture \
        r1,r2 --write link.pcapng --for 10s\n  carina vnet capture 0 --write - | tshark -r \
        -\n\nName a link by its number, one of its ends (NODE:INTERFACE), or its nodes \
        (NODE,NODE). The capture is taken at the first end. Ctrl-C ends the capture."
    )]
    Capture(capture::CaptureArgs),
    /// Show live rates of the links of a network, in each direction
    #[command(
        after_help = "Examples:\n  carina vnet top\n  carina vnet top demo --once\n  \
        carina --json vnet top --interval 5s\n\nArrows and page keys scroll, q quits. With \
        --json, the command prints one line per interval."
    )]
    Top(top::LinkTopArgs),
    /// Send echo requests from one node to another, and show hop by hop where they are dropped
    ///
    /// The command watches all interfaces of the network, or in a network of more than 200 links
    /// those on the expected path. It prints a row for each interface on the expected path, and for
    /// each other interface that an echo passed. If an echo is not answered, it also names the link
    /// or node that dropped it, with the link's counters.
    #[command(
        after_help = "Examples:\n  carina vnet trace r1 r3\n  carina vnet trace r1 r3 \
        --count 20\n\nExit code 1: a probe was not answered."
    )]
    Trace(trace::TraceArgs),
    /// Impair a link on purpose (delay, loss, lower rate and others), or show the impaired links
    #[command(
        after_help = "Examples:\n  carina vnet impair r1,r2 delay=20ms loss=1%\n  carina vnet \
        impair r1:eth0 rate=1Mbps --one-way\n  carina vnet impair r1,r2 --clear\n  carina vnet \
        impair\n\nName a link by its number, one of its ends (NODE:INTERFACE), or its nodes \
        (NODE,NODE). Words: delay, jitter, loss, duplicate, reorder, corrupt, rate. The words \
        replace the previous impairment of the link, and hold until --clear."
    )]
    Impair(impair::ImpairArgs),
    /// Stop a node; it stays off until `start`
    ///
    /// A virtual machine ends as if its power were cut. In a namespace all processes end. The
    /// neighbours' interfaces to the node lose the carrier signal.
    #[command(
        after_help = "Examples:\n  carina vnet stop r1\n  carina --json vnet stop r1 \
        --vnet demo\n  carina vnet stop r1 --vnet demo --vno 127.0.0.1:7099 --keys operator\n\n\
        Exit code 1: there is no such node. `apply` leaves the node stopped."
    )]
    Stop(switching::NodeArgs),
    /// Start a node that is stopped or has ended, and wait until it runs
    #[command(
        after_help = "Examples:\n  carina vnet start r1\n  carina --json vnet start r1 --vnet \
        demo\n\nExit code 1: there is no such node, or it does not start."
    )]
    Start(switching::NodeArgs),
    /// End a node and start it again, and wait until it runs
    ///
    /// A virtual machine boots from its current disk. Other nodes keep running.
    #[command(
        after_help = "Examples:\n  carina vnet restart r1\n  carina --json vnet restart r1 \
        --vnet demo\n\nExit code 1: there is no such node, or it does not start."
    )]
    Restart(switching::NodeArgs),
    /// Take a link down, or up again
    #[command(
        subcommand,
        after_help = "Examples:\n  carina vnet link down r1,r2\n  carina vnet link up 0 --vnet \
        demo\n  carina --json vnet link down r1:eth0\n\nExit code 1: there is no such link, or \
        no probe packet passes it once it is up. `apply` leaves the link down."
    )]
    Link(switching::LinkCommand),
    /// Grant rights on a network of a VNO to a delegate (the holder of a delegate's certificate)
    ///
    /// A grant replaces an earlier grant to the same delegate. It ends when its network is removed.
    #[command(
        after_help = "Examples:\n  carina vnet grant demo --to bob --may exec,console --node r1 \
        --vno 127.0.0.1:7099 --keys operator\n  carina vnet grant demo --to bob --withdraw \
        --vno 127.0.0.1:7099 --keys operator\n  carina vnet exec --vno acme=127.0.0.1:7099 \
        --keys bob r1 uptime\n\n`carina vnet keys issue KEYS delegate bob` makes the \
        certificate. The rights test, apply and remove include see; console includes watch."
    )]
    Grant(roles::grants::GrantArgs),
    /// List the rights that delegates have on a network of a VNO
    #[command(
        after_help = "Example:\n  carina vnet grants demo --vno 127.0.0.1:7099 --keys operator"
    )]
    Grants(roles::grants::GrantsArgs),
    /// Make a token with which an end user joins a network at an access point
    ///
    /// The token contains the addresses and the key of the access point. Any holder of the token
    /// can join. The token belongs to the first system that joins with it: the access point refuses
    /// every other system that shows this token, also later. The network's document names the
    /// access points and their users. A provider sets the address at which users reach the access
    /// point (`carina vnet agent --users-at`).
    #[command(
        after_help = "Examples:\n  carina vnet token demo home --user alice --for 12h\n  \
        carina vnet token demo home --user alice --at 203.0.113.7 | ssh laptop carina vnet join -\n\
        \x20\x20carina vnet token demo home --user alice --vno 127.0.0.1:7099 --keys operator"
    )]
    Token(access::TokenArgs),
    /// Revoke all tokens of an end user, and disconnect the user's system
    #[command(
        after_help = "Examples:\n  carina vnet revoke demo home --user alice\n  \
        carina vnet revoke demo home --user alice --vno 127.0.0.1:7099 --keys operator"
    )]
    Revoke(access::RevokeArgs),
    /// List the end users of each access point of a network: address, state, and bytes sent and
    /// received
    #[command(after_help = "Examples:\n  carina vnet users\n  carina --json vnet users demo")]
    Users(access::UsersArgs),
    /// Connect this system to a network with a token, until the token expires or Ctrl-C
    ///
    /// The system reaches the access point by UDP over IP. While the command runs, there is an
    /// interface with the user's address and routes to the network. If the token has the right
    /// `dif`, the command also runs a Carina node, in its run directory, as a member of the
    /// network's DIF.
    #[command(
        after_help = "Examples:\n  carina vnet join eyJhbGciOiJFZERTQSJ9...\n  carina vnet join \
        - < token\n  carina --run /run/club vnet join - < token\n\nThe command needs root. Exit \
        code 3: the token is refused or has expired; the error tells the reason and the remedy."
    )]
    Join(join::JoinArgs),
    /// Probe all links of a network, and run the tests of its document
    #[command(
        after_help = "Example:\n  carina vnet test demo\n\nExit code 1: a test does not \
        hold."
    )]
    Test {
        /// Name of the network to test [default: the only network]
        name: Option<String>,
        #[command(flatten)]
        operator: OperatorArgs,
    },
    #[cfg(feature = "tools")]
    /// Make a network of six VMs in a ring; print the time of each phase, and for comparison the
    /// times of a published system
    #[command(
        after_help = "Examples:\n  carina vnet demo\n  carina vnet demo --boot cold --keep\n  \
        carina --json vnet demo --runs 10"
    )]
    Demo(demo::DemoArgs),
    /// Run the agent of this host, which makes networks and repairs them, until Ctrl-C
    ///
    /// Without an agent, nodes keep running. Links on the kernel's path (column PATH of `carina
    /// vnet status`) keep carrying frames; other links carry nothing until the next agent starts.
    ///
    /// Parts of networks that a PIP orders may have links to other hosts, over the underlay. The
    /// agent owns the outer addresses of these links, and answers ARP for them.
    #[command(
        after_help = "Examples:\n  carina vnet agent\n  carina vnet agent --host h1 --underlay \
        eth1\n\n`carina vnet up` starts an agent if none runs."
    )]
    Agent(agent::AgentArgs),
    /// Serve roles of virtual networks: any set of PIPs, VNPs and VNOs that a file names
    #[command(
        after_help = "Example:\n  carina vnet serve roles.toml\n\ndocs/reference/vnet-roles.md \
        lists the keys of the file. Ctrl-C ends the roles; the networks keep running."
    )]
    Serve {
        /// TOML file that names the roles to serve
        file: PathBuf,
    },
    /// Serve a physical infrastructure provider (PIP), whose hosts run the nodes of networks
    #[command(
        after_help = "Examples:\n  carina vnet pip --name uk --listen 127.0.0.1:7101 \
        --inventory uk.toml --keys keys\n  carina vnet pip --name uk --listen 127.0.0.1:7101 \
        --inventory uk.toml --keys keys --web 127.0.0.1:8098"
    )]
    Pip(roles::PipArgs),
    /// Serve a virtual network provider (VNP), which makes networks from parts that PIPs lease to
    /// it
    #[command(
        after_help = "Example:\n  carina vnet vnp --name net --listen 127.0.0.1:7100 \
        --pip uk=127.0.0.1:7101 --pip de=127.0.0.1:7102 --keys keys"
    )]
    Vnp(roles::VnpArgs),
    /// Serve a virtual network operator (VNO), whose networks a VNP makes
    #[command(
        after_help = "Example:\n  carina vnet vno --name acme --listen 127.0.0.1:7099 \
        --vnp net=127.0.0.1:7100 --keys keys"
    )]
    Vno(roles::VnoArgs),
    /// Issue and revoke the certificates by which roles, agents and operators identify themselves
    #[command(
        subcommand,
        after_help = "Example:\n  carina vnet keys ca keys && carina vnet keys issue keys pip uk"
    )]
    Keys(KeysCommand),
    /// Check a document: list its errors, or how many nodes and links it asks for
    ///
    /// A document describes a virtual network; see docs/reference/vnet-documents.md.
    #[command(
        after_help = "Examples:\n  carina vnet check demo.toml\n  carina --json vnet check \
        demo.xml\n\nExit code 3: the document is wrong."
    )]
    Check(document::Source),
    /// Write a document in another format: TOML, XML or JSON
    #[command(after_help = "Example:\n  carina vnet convert demo.toml --to xml > demo.xml")]
    Convert {
        #[command(flatten)]
        source: document::Source,
        /// Format to write: toml, xml or json
        #[arg(long, value_name = "FORM")]
        to: Form,
    },
    #[cfg(feature = "tools")]
    /// Convert a network file of another tool into a document
    ///
    /// Standard error lists what a document cannot express, with line and reason.
    #[command(
        after_help = "Examples:\n  carina vnet import two-hosts.lab --out two.toml\n  \
        carina vnet import srl02.clab.yml --rate 1Gbps\n  carina vnet import lab.conf\n  \
        carina vnet import request.xml --from rspec --to xml\n  \
        carina --json vnet import Abilene.graphml\n\nExit code 3: the file does not have the \
        format, or no document can express its network."
    )]
    Import(import::ImportArgs),
    /// Write an existing network in a format of another tool
    ///
    /// rspec: a GENI manifest; rfc8345: a topology of RFC 8345 and 8346 in JSON; dot: for Graphviz;
    /// containerlab: a topology file of containerlab; svg: a picture. None of them shows the
    /// provider's hosts or the links between hosts.
    #[command(
        after_help = "Examples:\n  carina vnet export demo --to rspec --out manifest.xml\n  \
        carina vnet export --to rfc8345\n  carina vnet export --to dot | dot -Tpng > demo.png"
    )]
    Export(export::ExportArgs),
    /// Add, list and remove disk images from which nodes boot in place of Carina's own guest
    #[command(
        subcommand,
        after_help = "Example:\n  carina vnet image add debian.qcow2 --name debian"
    )]
    Image(image::ImageCommand),
    /// Print the XML schema (XSD) for documents that are written in XML
    #[command(after_help = "Example:\n  carina vnet schema > vnet.xsd && \
        xmllint --noout --schema vnet.xsd demo.xml")]
    Schema,
    #[cfg(feature = "tools")]
    /// Measure embedding, instantiation and forwarding of virtual networks; compare with results
    /// from publications
    #[command(
        subcommand,
        after_help = "Example:\n  carina vnet bench embed --topology geant --seeds 3"
    )]
    Bench(bench::VnetBenchCommand),
}
