//! `carina connect`: makes an application of a DIF reachable by a socket of this system, by
//! standard input and output, or by a file descriptor.

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

/// Make an application of a DIF reachable by a TCP, UDP or Unix socket of this system
///
/// Each connection to the socket becomes a flow to the application.
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
    /// Application name to call: each connection becomes a flow to it
    name: AppName,
    #[command(flatten)]
    endpoint: LocalEndpoint,
    /// DIF in which to reach the name [default: the first DIF that knows it]
    #[arg(long)]
    dif: Option<DifName>,
    /// Application name that the other side sees as the caller
    #[arg(long, default_value = "carina.connect")]
    local: AppName,
    /// Largest number of connections at the same time; the kernel keeps further connections
    /// waiting. With --udp: largest number of peers; datagrams of further peers are dropped
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_MAX)]
    connections_max: usize,
    /// With --udp: time without datagrams after which the flow of a peer is closed, such as 60s
    #[arg(long, value_name = "TIME", value_parser = carina_text::duration::parse_ns,
        default_value = "60s")]
    idle: u64,
}

/// How programs of this system reach the application: exactly one of these options is given.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct LocalEndpoint {
    /// Listen on a TCP port; with port 0 the kernel chooses one, which is printed
    #[arg(long, value_name = "HOST:PORT")]
    tcp: Option<String>,
    /// Listen on a Unix socket at this path; the socket is removed when the command ends
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Listen on a UDP port; datagrams from each peer address get a flow of their own
    #[arg(long, value_name = "HOST:PORT")]
    udp: Option<String>,
    /// Connect standard input and standard output to one flow
    #[arg(long)]
    stdio: bool,
    /// Send the file descriptor of a flow's socket over standard output, which must be a Unix
    /// socket, and exit (for ProxyUseFdpass of ssh)
    #[arg(long)]
    fdpass: bool,
}

/// Connects to an application of a DIF. With an address to listen on, makes a flow of each
/// connection there, until a signal arrives. Without, allocates one flow, and passes its descriptor
/// on (`--fdpass`) or copies between it and standard input and output.
///
/// # Errors
/// The node refuses the flow or ends, or the address cannot be listened on.
pub(crate) fn run(shared: &Shared, args: ConnectArgs) -> Outcome {
    match args.endpoint.listen()? {
        Some(listen) => serve(shared, args, listen),
        None if args.endpoint.fdpass => pass_descriptor(shared, &args),
        None => carry(shared, &args),
    }
}

impl LocalEndpoint {
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

/// Accepts connections and makes a flow of each, until SIGINT or SIGTERM arrives.
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
    let _last_lines = crate::log::start_for_server()?;
    let mut gateway = Gateway::new(node(shared)?).attempt("starting")?;
    let name = settings.name.clone();
    let listening = gateway.connect(settings)?;
    if shared.json {
        print_json(&serde_json::json!({ "listening": listening, "name": name }))?;
    } else {
        print_line(format!("{listening} leads to {name}"))?;
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

/// Allocates a flow, and sends its socket to the process at the other end of standard output.
fn pass_descriptor(shared: &Shared, args: &ConnectArgs) -> Outcome {
    let socket = allocate(shared, args)?;
    // ssh expects one byte together with the descriptor.
    carina_sys::send_with_fds(std::io::stdout(), &[0], &[socket.as_fd()]).map_err(|error| {
        failed(format!(
            "sending the descriptor over standard output: {error}; standard output must be a Unix \
             socket, as ssh makes it for a ProxyCommand with ProxyUseFdpass=yes"
        ))
    })
}

/// Copies standard input into a flow and the flow to standard output, until both directions of the
/// flow have ended.
fn carry(shared: &Shared, args: &ConnectArgs) -> Outcome {
    let words = "interrupted; the flow may not have carried all data";
    end_with_signal_saying(shared.json, words).attempt(TAKING_SIGNALS)?;
    let socket = UnixStream::from(allocate(shared, args)?);
    let writing = socket.try_clone().attempt("sending")?;
    let sender = std::thread::spawn(move || send_input(writing));
    receive_output(&socket)?;
    // With a terminal the command ends when the peer has closed, without waiting for more input.
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
            // Shutting down fails if the flow has ended already.
            let _ = socket.shutdown(Shutdown::Write);
            return Ok(());
        }
        match socket.write_all(&buffer[..read]) {
            // The other side reads no more, like a reader that closes its pipe.
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

/// Whether both directions of the flow have ended. Waits up to [`LOOK`] for that.
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

/// Time between two checks whether the thread that reads standard input has ended.
const LOOK: Duration = Duration::from_millis(20);
