//! `carina vlan-translate`: joins two interfaces and changes the Ethertype of VLAN tags between
//! them.

use carina_netdev::FaultPlan;
use carina_netdev::vlan_translate::changes;
use clap::Args;

use super::wire_bridge::{self, Pace};
use crate::Shared;
use crate::argument::ArgumentError;
use crate::failure::{Outcome, usage};

/// Join two Ethernet interfaces and translate the Ethertype of VLAN tags between them
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  carina vlan-translate eth1 eth2 --inner 0x7100 --outer \
    0x8100\n\nIF1 is in a network that drops frames with the usual VLAN tag, so its systems use \
    a tag of another type; IF2 is in a network with usual tags. Frames without such a tag pass \
    unchanged. A kernel allows frames with the usual tag to be 4 bytes longer than the MTU, but \
    not frames with a tag of another type: if systems send frames of full length, set an MTU on \
    IF1 that is 4 larger. Needs CAP_NET_RAW. SIGINT and SIGTERM end the command, which then \
    prints its counters."
)]
pub(crate) struct VlanTranslateArgs {
    /// Interface to the network whose VLAN tags have the Ethertype of --inner
    #[arg(value_name = "IF1")]
    first: String,
    /// Interface to the network whose VLAN tags have the Ethertype of --outer
    #[arg(value_name = "IF2")]
    second: String,
    /// Ethertype of the VLAN tags on IF1, the first interface
    #[arg(long, default_value = "0x7100", value_parser = ethertype)]
    inner: u16,
    /// Ethertype of the VLAN tags on IF2, the second interface
    #[arg(long, default_value = "0x8100", value_parser = ethertype)]
    outer: u16,
    #[command(flatten)]
    pace: Pace,
}

/// Bridges two interfaces and translates the Ethertypes of VLAN tags between them, until a signal
/// or the time limit ends it. Then prints its counters.
///
/// # Errors
/// An interface cannot be used, or `--inner` and `--outer` are the same.
pub(crate) fn run(shared: &Shared, args: &VlanTranslateArgs) -> Outcome {
    if args.inner == args.outer {
        return Err(usage(
            "--inner and --outer are the same: nothing to translate",
        ));
    }
    let names = [args.first.as_str(), args.second.as_str()];
    let plan = FaultPlan::default();
    let changes = changes(args.inner, args.outer);
    wire_bridge::run(shared, names, [plan, plan], changes, &args.pace)
}

/// Parses an Ethertype in hexadecimal, with or without `0x`.
fn ethertype(text: &str) -> Result<u16, ArgumentError> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match u16::from_str_radix(digits, 16) {
        Ok(value) if value >= 0x0600 => Ok(value),
        _ => Err(ArgumentError::Ethertype(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ethertypes_are_hexadecimal_and_above_lengths() {
        assert_eq!(ethertype("0x7100"), Ok(0x7100));
        assert_eq!(ethertype("88a8"), Ok(0x88a8));
        assert!(ethertype("0x05ff").is_err() && ethertype("x").is_err());
    }
}
