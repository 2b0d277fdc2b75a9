//! `carina capture`: copies what an IPCP sends and receives to the screen or into a file.

use std::time::Duration;

use carina_api::control::{CaptureCreate, CaptureInfo, Client};

use crate::Shared;
use crate::commands::packet_output::{OutputArgs, Sink};
use crate::failure::{Attempt, Outcome};
use crate::interrupt::{Interrupt, TAKING_SIGNALS};
use crate::report::progress;

/// Copy the packets that an IPCP sends and receives: PDUs of a normal DIF, VMPI records, Ethernet
/// frames
///
/// Shows packets as `carina dissect` does, or writes the packets into a file (pcapng) that `carina
/// dissect` and Wireshark read. PDUs of a normal DIF are copied without their SDU protection. The
/// data plane never waits for a capture: packets that are not read in time are counted as missed.
/// Ctrl-C and SIGTERM end the command; it then prints the number of packets (exit code 0).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  carina capture blue
  carina capture blue --write blue.pcapng --for 10s
  carina capture vm1 --write - | carina dissect --verbose -")]
pub(crate) struct CaptureArgs {
    /// Name of the IPCP whose packets to copy, or of a DIF that has only one IPCP on this system
    ipcp: String,
    #[command(flatten)]
    output: OutputArgs,
}

/// Copies the packets that an IPCP sends and receives to a file or the terminal, until a limit is
/// reached or a signal arrives. Reports the number of packets copied and missed.
///
/// # Errors
/// The node does not run or refuses, or the file cannot be written.
pub(crate) fn run(shared: &Shared, args: &CaptureArgs) -> Outcome {
    let snap_bytes = args.output.snap_bytes()?;
    let interrupt = Interrupt::take().attempt(TAKING_SIGNALS)?;
    let mut sink = args.output.open(shared)?;
    let control = shared.control();
    let create = CaptureCreate {
        ipcp: args.ipcp.clone(),
        snap_bytes,
    };
    let info = control
        .create_capture(&create)
        .attempt(format!("capturing at {}", args.ipcp))?;
    let result = copy(&control, &info, &mut sink, &interrupt);
    let end = control.end_capture(info.id);
    result?;
    let end = end.attempt("ending the capture")?;
    progress(format!(
        "{} packets of {} in DIF {}, {} missed",
        sink.packets(),
        info.ipcp,
        info.dif,
        end.missed
    ));
    Ok(())
}

fn copy(control: &Client, info: &CaptureInfo, sink: &mut Sink, interrupt: &Interrupt) -> Outcome {
    loop {
        let left = sink.time_left().min(WAIT);
        let portion = control
            .read_capture(info.id, left)
            .attempt("reading the capture")?;
        let is_over = sink.take(&portion)? || left.is_zero();
        if is_over || interrupt.is_pending().attempt(TAKING_SIGNALS)? {
            return Ok(());
        }
    }
}

/// How long one request to the node waits for a packet. A signal is noticed at most this late.
const WAIT: Duration = Duration::from_millis(500);
