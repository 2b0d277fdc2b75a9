//! `carina connect`: a name becomes reachable by a socket, by standard input and output, or by a
//! descriptor.

use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use carina_api::{AppName, DifName, FlowSpec};
use carina_gateway::{CONNECTIONS_MAX, Connect, Endpoint, Gateway};

use super::expose::{endpoint, idle_ms, node, wrong};
use crate::Shared;
use crate::failure::{Attempt, Failure, Outcome, failed};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal_saying};
use crate::report::{print_bytes, print_json, print_line};

/// Make a name reachable by a socket: each connection becomes a flow to it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina connect ssh.vm1 --tcp 127.0.0.1:2222\n  carina connect \
    app --unix /run/app.sock\n  carina connect dns --udp 127.0.0.1:5353\n  ssh -o \
    ProxyCommand='carina connect ssh.vm1 --stdio' user@vm1\n  ssh -o ProxyUseFdpass=yes -o \
    ProxyCommand='carina connect ssh.vm1 --fdpass' user@vm1\n\nWith --tcp, --unix and --udp the \
    command runs until Ctrl-C. The data of TCP and Unix connections does not pass through the \
    command, and the connections continue when it ends."
)]
pub(crate) struct ConnectArgs {
    /// The name to reach
    name: AppName,
    #[command(flatten)]
    way: Way,
    /// The DIF [default: the first that knows the name]
    #[arg(long)]
    dif: Option<DifName>,
    /// The calling application's name
    #[arg(long, default_value = "carina.connect")]
    local: AppName,
    /// Connections at a time; more wait to be accepted
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections_max: usize,
    /// Time after which a silent peer is forgotten (--udp)
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns,
        default_value = "60s")]
    idle: u64,
}

/// By what the name becomes reachable.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Way {
    /// Listen on a TCP port; port 0 has the kernel choose one
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<String>,
    /// Listen on a Unix socket, which is removed at the end
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Listen on a UDP port; each peer address has a flow of its own
    #[arg(long, value_name = "HOST:PORT")]
    udp: Option<String>,
    /// Carry standard input and output
    #[arg(long)]
    stdio: bool,
    /// Send the flow's socket over standard output, a Unix socket, and end
    #[arg(long)]
    fdpass: bool,
}

/// Runs the command.
///
/// # Errors
/// The node refuses the flow or ends, or the address cannot be listened on.
pub(crate) fn run(shared: &Shared, args: ConnectArgs) -> Outcome {
    match args.way.listen()? {
        Some(listen) => serve(shared, args, listen),
        None if args.way.fdpass => pass_descriptor(shared, &args),
        None => carry(shared, &args),
    }
}

impl Way {
    fn listen(&self) -> Result<Option<Endpoint>, Failure> {
        let unix = self.unix.as_ref().map(|path| path.display().to_string());
        let ways = [("tcp", &self.tcp), ("unix", &unix), ("udp", &self.udp)];
        let mut given = ways.into_iter().filter_map(|(kind, address)| {
            let address = address.as_ref()?;
            Some(endpoint(kind, address))
        });
        given.next().transpose()
    }
}

/// Listens until a signal comes.
fn serve(shared: &Shared, args: ConnectArgs, listen: Endpoint) -> Outcome {
    let settings = Connect {
        name: args.name,
        dif: args.dif,
        local: args.local,
        listen,
        connections_max: args.connections_max,
        idle_ms: idle_ms(args.idle),
    };
    settings.check().map_err(wrong)?;
    let stop = carina_sys::StopSignal::new().attempt(TAKING_SIGNALS)?;
    let mut gateway = Gateway::new(node(shared)?).attempt("starting")?;
    let name = settings.name.clone();
    let listening = gateway.connect(settings)?;
    if shared.json {
        print_json(&serde_json::json!({ "listening": listening, "name": name }))?;
    } else {
        print_line(format!("{listening} is connected to {name}"))?;
    }
    Ok(gateway.run(stop)?)
}

fn allocate(shared: &Shared, args: &ConnectArgs) -> Result<OwnedFd, Failure> {
    let node = shared.node()?;
    let spec = FlowSpec::reliable();
    let flow = node.allocate_stream(&args.local, &args.name, args.dif.as_ref(), &spec, None);
    let flow = flow.attempt(format!("connecting to {}", args.name))?;
    flow.socket
        .ok_or_else(|| failed("the node allocated a flow without a socket"))
}

/// Gives the flow's socket to the process at the other end of standard output.
fn pass_descriptor(shared: &Shared, args: &ConnectArgs) -> Outcome {
    let socket = allocate(shared, args)?;
    // What ssh expects beside the descriptor is one byte.
    carina_sys::send_with_fds(std::io::stdout(), &[0], &[socket.as_fd()]).map_err(|error| {
        failed(format!(
            "sending the descriptor over standard output: {error}; standard output must be a Unix \
             socket, as ssh makes it for a ProxyCommand with ProxyUseFdpass=yes"
        ))
    })
}

/// Carries standard input and output until both directions of the flow have ended.
fn carry(shared: &Shared, args: &ConnectArgs) -> Outcome {
    let words = "interrupted; the flow may not have carried all data";
    end_with_signal_saying(shared.json, words).attempt(TAKING_SIGNALS)?;
    let socket = UnixStream::from(allocate(shared, args)?);
    let writing = socket.try_clone().attempt("sending")?;
    let sender = std::thread::spawn(move || send_input(writing));
    receive_output(&socket)?;
    // A person at a terminal has nothing more to say to a peer that has gone.
    while !sender.is_finished() && !std::io::stdin().is_terminal() {
        if has_hung_up(&socket) {
            return Ok(());
        }
    }
    if !sender.is_finished() {
        return Ok(());
    }
    let sent = sender.join();
    sent.map_err(|_| failed("the sending thread panicked"))?
}

fn send_input(mut socket: UnixStream) -> Outcome {
    let mut stdin = std::io::stdin().lock();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = match stdin.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.attempt("reading standard input")?,
        };
        if read == 0 {
            // It fails when the flow is over.
            let _ = socket.shutdown(Shutdown::Write);
            return Ok(());
        }
        match socket.write_all(&buffer[..read]) {
            // The other side wants no more, as a reader that closes its pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written.attempt("sending")?,
        }
    }
}

fn receive_output(mut socket: &UnixStream) -> Outcome {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = match socket.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.attempt("receiving")?,
        };
        if read == 0 {
            return Ok(());
        }
        print_bytes(&buffer[..read])?;
    }
}

/// Whether both directions have ended; waits a moment for it.
fn has_hung_up(socket: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as i64,
    };
    poll(&mut fds, Some(&moment)).is_ok_and(|ready| ready > 0)
}

const BUFFER_BYTES: usize = 64 << 10;

/// How often the end of standard input is looked for.
const LOOK: Duration = Duration::from_millis(20);
