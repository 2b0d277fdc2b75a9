//! `carina vnet`: makes and operates virtual networks.

use carina_vnet::report::NodeSwitch;

pub(crate) use self::command::VnetCommand;
use self::roles::operator::{self, OperatorArgs};
use crate::Shared;
use crate::failure::Outcome;

mod access;
mod agent;
#[cfg(feature = "tools")]
pub(crate) mod bench;
mod capture;
mod clock;
mod command;
mod deadline;
#[cfg(feature = "tools")]
pub(crate) mod demo;
mod document;
mod export;
mod image;
mod impair;
#[cfg(feature = "tools")]
pub(crate) mod import;
mod inside;
mod join;
mod keeping;
mod member_node;
mod network;
mod network_report;
mod page;
mod page_file;
mod picture;
mod plan;
mod roles;
mod switching;
mod top;
mod trace;
mod user_namespace;
mod whereabouts;

/// The commands of `carina vnet` that are implemented in `carina-tools`.
#[cfg(feature = "tools")]
pub(crate) struct VnetTools {
    /// `carina vnet bench`.
    pub bench: fn(&Shared, bench::VnetBenchCommand) -> Outcome,
    /// `carina vnet demo`.
    pub demo: fn(&Shared, demo::DemoArgs) -> Outcome,
    /// `carina vnet import`.
    pub import: fn(&Shared, import::ImportArgs) -> Outcome,
}

/// Runs a command of `carina vnet`.
///
/// # Errors
/// A document is wrong, an option is not possible, or the command fails.
pub(crate) fn run(
    shared: &Shared,
    command: VnetCommand,
    #[cfg(feature = "tools")] tools: &VnetTools,
) -> Outcome {
    match command {
        VnetCommand::Up(args) => network::up(shared, &args),
        VnetCommand::Apply(args) => network::apply(shared, &args),
        VnetCommand::Plan(source) => plan::run(shared, &source),
        VnetCommand::Down {
            name,
            all,
            operator,
        } => down(shared, name.as_deref(), all, &operator),
        VnetCommand::List(operator) => list(shared, &operator),
        VnetCommand::Status { name, operator } => status(shared, name.as_deref(), &operator),
        VnetCommand::Where { node, vnet } => {
            whereabouts::run(shared, node.as_deref(), vnet.as_deref())
        }
        VnetCommand::Show {
            name,
            svg,
            operator,
        } => picture::show(shared, name.as_deref(), svg.as_deref(), &operator),
        VnetCommand::Events {
            name,
            follow,
            operator,
        } => events(shared, name.as_deref(), follow, &operator),
        VnetCommand::Exec(args) => inside::exec(shared, &args),
        VnetCommand::Console {
            node,
            vnet,
            operator,
        } => console(shared, vnet.as_deref(), &node, &operator),
        VnetCommand::Migrate(args) => keeping::migrate(shared, &args),
        VnetCommand::Drain(args) => roles::draining::drain(shared, &args),
        VnetCommand::Undrain(args) => roles::draining::undrain(shared, &args),
        VnetCommand::Save { name, directory } => keeping::save(shared, &name, &directory),
        VnetCommand::Restore { directory } => keeping::restore(shared, &directory),
        VnetCommand::Capture(args) => capture::run(shared, &args),
        VnetCommand::Top(args) => top::run(shared, &args),
        VnetCommand::Trace(args) => trace::run(shared, &args),
        VnetCommand::Impair(args) => impair::run(shared, &args),
        VnetCommand::Stop(args) => switching::node(shared, &args, NodeSwitch::Stop),
        VnetCommand::Start(args) => switching::node(shared, &args, NodeSwitch::Start),
        VnetCommand::Restart(args) => switching::node(shared, &args, NodeSwitch::Restart),
        VnetCommand::Link(command) => switching::link(shared, &command),
        VnetCommand::Test { name, operator } => network::test(shared, name.as_deref(), &operator),
        VnetCommand::Token(args) => access::token(shared, &args),
        VnetCommand::Revoke(args) => access::revoke(shared, &args),
        VnetCommand::Users(args) => access::users(shared, &args),
        VnetCommand::Grant(args) => roles::grants::grant(shared, &args),
        VnetCommand::Grants(args) => roles::grants::grants(shared, &args),
        VnetCommand::Join(args) => join::run(shared, &args),
        #[cfg(feature = "tools")]
        VnetCommand::Demo(args) => (tools.demo)(shared, args),
        VnetCommand::Agent(args) => agent::serve(shared, &args),
        VnetCommand::Serve { file } => roles::serve_file(shared, &file),
        VnetCommand::Pip(args) => roles::pip(shared, args),
        VnetCommand::Vnp(args) => roles::vnp(shared, args),
        VnetCommand::Vno(args) => roles::vno(shared, args),
        VnetCommand::Keys(command) => roles::keys::run(shared, command),
        VnetCommand::Check(source) => document::check(shared, &source),
        VnetCommand::Convert { source, to } => document::convert(&source, to),
        #[cfg(feature = "tools")]
        VnetCommand::Import(args) => (tools.import)(shared, args),
        VnetCommand::Export(args) => export::run(shared, &args),
        VnetCommand::Image(command) => image::run(shared, command),
        VnetCommand::Schema => document::schema(),
        #[cfg(feature = "tools")]
        VnetCommand::Bench(command) => (tools.bench)(shared, command),
    }
}

fn down(shared: &Shared, name: Option<&str>, all: bool, operator: &OperatorArgs) -> Outcome {
    match operator.client(shared)? {
        Some(client) => operator::down(shared, &client, name, all),
        None => network::down(shared, name, all),
    }
}

fn events(shared: &Shared, name: Option<&str>, follow: bool, operator: &OperatorArgs) -> Outcome {
    match operator.client(shared)? {
        Some(client) => operator::events(shared, &client, name, follow),
        None => network::events(shared, name, follow),
    }
}

fn status(shared: &Shared, name: Option<&str>, operator: &OperatorArgs) -> Outcome {
    match operator.client(shared)? {
        Some(client) => operator::status(shared, &client, name),
        None => network::status(shared, name),
    }
}

fn list(shared: &Shared, operator: &OperatorArgs) -> Outcome {
    match operator.client(shared)? {
        Some(client) => operator::list(shared, &client),
        None => network::list(shared),
    }
}

fn console(shared: &Shared, vnet: Option<&str>, node: &str, operator: &OperatorArgs) -> Outcome {
    match operator.client(shared)? {
        Some(vno) => roles::inside::console(&vno, vnet, node),
        None => inside::console(shared, vnet, node),
    }
}
