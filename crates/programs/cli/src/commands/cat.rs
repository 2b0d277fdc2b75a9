//! `carina cat`: copies standard input into a flow and the flow to standard output.

use std::io::{ErrorKind, Read};

use carina_api::{AppName, DifName};
use carina_client::{Error, Flow, FlowReceiver, FlowSender};
use carina_measure::traffic::{SDU_MAX, bytes};
use carina_measure::trial::target::Target;

use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed, usage};
use crate::flow_spec::{SPEC_HELP, SpecArg};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_saying};
use crate::report::{print_bytes, progress};

/// Copy standard input into a flow and the flow to standard output, like nc
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina cat --listen files > copy\n  carina cat files < \
    original\n\nEach side exits when both directions have ended."
)]
pub(crate) struct CatArgs {
    /// Application name to which to allocate a flow; with --listen, the name to register
    name: AppName,
    /// Register the name and accept one flow [default: connect to the name]
    #[arg(long, short)]
    listen: bool,
    /// Bytes of input in each SDU, such as 1400; the last SDU may be shorter [default: the bytes
    /// that one read of standard input returns, at most 64k]
    #[arg(long, value_parser = bytes)]
    sdu_size: Option<u64>,
    /// DIF to use [default: the first one that knows the name; with --listen, all DIFs]
    #[arg(long)]
    dif: Option<DifName>,
    #[arg(long, default_value = "reliable", help = SPEC_HELP)]
    spec: SpecArg,
    /// Application name of this client, which the other side sees
    #[arg(long, default_value = "carina.cat")]
    local: AppName,
    /// Send nothing and do not read standard input; only receive
    #[arg(long)]
    recv_only: bool,
}

/// Copies standard input into a flow, and the flow to standard output, until both directions end.
///
/// # Errors
/// The node refuses, the flow breaks, or a stream cannot be read or written.
pub(crate) fn run(shared: &Shared, args: CatArgs) -> Outcome {
    if args.sdu_size == Some(0) {
        return Err(usage(
            "--sdu-size is 0; SDUs of no bytes never carry any input",
        ));
    }
    let words = "interrupted; the flow may not have carried all data";
    end_with_signal_saying(shared.json, words).attempt(TAKING_SIGNALS)?;
    let (mut sender, receiver) = open(shared, &args)?.split();
    let sdu_size = args.sdu_size.map(|size| size as usize);
    let from_stdin = std::thread::spawn(move || {
        let sent = if args.recv_only {
            Ok(Counted::default())
        } else {
            input(&mut sender, sdu_size)
        };
        // Between systems both directions of a flow end together. A side that has sent nothing
        // therefore keeps its sender, so as not to cut off a peer that is still sending.
        let silent = sent.as_ref().is_ok_and(|sent| sent.sdus == 0);
        (sent, silent.then_some(sender))
    });
    // When output fails, this thread does not wait for the end of standard input, which may never
    // come.
    let received = output(receiver)?;
    let (sent, _held) = from_stdin
        .join()
        .map_err(|_| failed("the sending thread panicked"))?;
    let sent = sent?;
    if shared.json {
        let counts = serde_json::json!({
            "sdus_sent": sent.sdus, "bytes_sent": sent.bytes,
            "sdus_received": received.sdus, "bytes_received": received.bytes,
        });
        // Standard output carries the received data, so the counts go to standard error.
        progress(counts);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Counted {
    sdus: u64,
    bytes: u64,
}

impl Counted {
    fn add(&mut self, bytes: usize) {
        self.sdus += 1;
        self.bytes += bytes as u64;
    }
}

fn open(shared: &Shared, args: &CatArgs) -> Result<Flow, Failure> {
    let node = shared.node()?;
    if !args.listen {
        let target = Target {
            node,
            local: args.local.clone(),
            remote: args.name.clone(),
            dif: args.dif.clone(),
            spec: args.spec.0,
            wait: shared.wait_limit(),
        };
        return Ok(target.allocate()?);
    }
    let registered = node.register(&args.name, args.dif.as_ref());
    let mut registration = registered.attempt(format!("registering {}", args.name))?;
    loop {
        match registration.accept() {
            // The caller gave up before its request was accepted.
            Err(Error::Refused(_)) => {}
            accepted => return accepted.attempt("accepting a flow"),
        }
    }
}

fn input(sender: &mut FlowSender, sdu_size: Option<usize>) -> Result<Counted, Failure> {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; sdu_size.unwrap_or(READ_BYTES)];
    let mut counted = Counted::default();
    loop {
        let read = match sdu_size {
            Some(_) => read_full(&mut stdin, &mut buffer),
            None => read_some(&mut stdin, &mut buffer),
        };
        let len = read.attempt("reading standard input")?;
        if len == 0 {
            return Ok(counted);
        }
        match sender.send(&buffer[..len]) {
            Ok(()) => counted.add(len),
            // The peer has closed the flow, as a reader closes its pipe: not an error.
            Err(Error::Closed) => return Ok(counted),
            Err(error) => return Err(error).attempt("sending"),
        }
    }
}

fn output(mut receiver: FlowReceiver) -> Result<Counted, Failure> {
    let mut counted = Counted::default();
    loop {
        let sdu = match receiver.recv_vec(SDU_MAX as usize) {
            Ok(sdu) => sdu,
            Err(Error::Closed) => return Ok(counted),
            Err(error) => return Err(error).attempt("receiving"),
        };
        counted.add(sdu.len());
        print_bytes(&sdu)?;
    }
}

/// Largest number of bytes to read from standard input at once without `--sdu-size`.
const READ_BYTES: usize = 64 << 10;

fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Fills the buffer, or reads as much as there is before the end of the input. Returns the number
/// of bytes read.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(len) => filled += len,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
