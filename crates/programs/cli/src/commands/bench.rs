//! `carina bench`: measures Carina, and other systems for comparison.

use carina_api::AppName;
use carina_apps::sample_packet::{ETHERNET_SIZES, SIZES};
use carina_bench::bindings;
use carina_bench::drivers;
use carina_bench::engine;
use carina_bench::flows::{self, FlowsOptions};
use carina_bench::guest;
use carina_bench::ip;
use carina_bench::local::{self, LocalOptions};
use carina_bench::lwaftr;
use carina_bench::paper::{self, Case, PaperOptions, PaperResults, Request, tables};
use carina_bench::restart::{self, RestartOptions};
use carina_bench::vhost;
use carina_bench::vm_and_host;
use carina_bench::wrap;
use carina_bench::{crowd, hv, xen};
use carina_measure::results::{OURS, Results};
use clap::Subcommand;

use crate::Shared;
use crate::commands::measured::{PROGRESS, all_measured, show};
use crate::commands::vm::xen::Hypervisor;
use crate::failure::{Attempt, Outcome, usage};
use crate::interrupt::{TAKING_SIGNALS, end_with_signal};
use crate::report::{print_json, print_line};

mod arguments;

use self::arguments::{
    BindingsArgs, DriversArgs, FlowsArgs, GuestArgs, HvArgs, IpArgs, LocalArgs, PaperArgs,
    RestartArgs, TcpArgs, WrapArgs,
};
pub(crate) use self::arguments::{CaseArgs, chosen};

/// Measure Carina's speed, and that of other systems for comparison
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure messages between a VM and its host over each VMPI device; compare with bare rings in
    /// the same memory, and with UDP over virtio-net and e1000
    #[command(
        after_help = "Examples:\n  carina bench hv --json > hv.json\n  carina bench hv \
        --sizes 64,4000,1M --runs 7 --time 1s\n  carina bench hv --systems vsock --crowd 63 --time \
        5s\n  carina bench hv --hypervisor xen\n\nBoots one VM. As root, or where user \
        namespaces are allowed, the command also measures the other systems in that VM."
    )]
    Hv(HvArgs),
    /// Measure flows between two processes of this host; compare with a bare ring, Unix sockets,
    /// UDP and TCP
    #[command(after_help = "Examples:\n  carina bench local --json > local.json\n  \
        carina bench local --sizes 64,4000 --runs 9")]
    Local(LocalArgs),
    /// Measure how many frames per second graphs of apps forward on one core; compare with DPDK's
    /// testpmd between null devices
    #[command(
        after_help = "Examples:\n  carina bench engine --json > engine.json\n  carina bench \
        engine --cases source-sink,hop-1 --runs 9\n\nWithout --sizes, frames have 64 bytes. A \
        warm-up of a third of the measuring time precedes each measurement. DPDK is measured \
        where dpdk-testpmd is installed (Debian: dpdk, dpdk-dev)."
    )]
    Engine(CaseArgs),
    /// Measure how many packets per second an AFTR forwards on one core, in both directions at the
    /// same time, and how long it takes to load a million softwires; compare with DPDK's testpmd
    /// between null devices
    #[command(
        after_help = "Examples:\n  carina bench lwaftr --json > lwaftr.json\n  carina bench \
        lwaftr --cases few-encap,few-decap --sizes 64 --runs 9\n\nWithout --sizes, frames on \
        the IPv4 side have 64, 550 and 1500 bytes. A warm-up of a third of the measuring time \
        precedes each measurement. DPDK is measured where dpdk-testpmd is installed (Debian: \
        dpdk, dpdk-dev)."
    )]
    Lwaftr(CaseArgs),
    /// Measure how many frames per second pass the rings of a vhost-user port, with Carina and
    /// with DPDK's net_vhost as back end; the front end is always DPDK's virtio-user
    #[command(
        after_help = "Examples:\n  carina bench vhost --json > vhost.json\n  carina bench \
        vhost --cases packed-guest-to-host --sizes 64,1500 --runs 9\n\nWithout --sizes, frames \
        have 64, 512, 1500 and 4000 bytes. A warm-up of a third of the measuring time precedes \
        each measurement. The command needs dpdk-testpmd (Debian: dpdk, dpdk-dev) and two \
        processors, but no privilege."
    )]
    Vhost(CaseArgs),
    /// Measure the network card of an unmodified guest over Carina's vhost-user back end; compare
    /// with a tap interface of QEMU
    #[command(
        after_help = "Examples:\n  carina bench guest --json > guest.json\n  carina bench \
        guest --cases udp-guest-to-host --sizes 64 --runs 9\n\nCases: udp-guest-to-host, \
        udp-host-to-guest, tcp-guest-to-host, tcp-host-to-guest; without --sizes, payloads have \
        64 and 1400 bytes. The command needs root, or a system that allows user namespaces."
    )]
    Guest(GuestArgs),
    /// Measure Carina's drivers for e1000e and virtio-net in the user space of a guest; compare
    /// with the drivers of the guest's kernel
    #[command(
        after_help = "Examples:\n  carina bench drivers --json > drivers.json\n  carina bench \
        drivers --cases e1000e-send --sizes 64 --runs 9\n\nCases: e1000e-send, e1000e-receive, \
        virtio-send, virtio-receive; without --sizes, frames have 64 and 1500 bytes. The \
        command boots one VM and needs no privilege."
    )]
    Drivers(DriversArgs),
    /// Measure how many packets a guest's card loses, and for how long no packet arrives, while the
    /// guest reboots, its back end is killed, or the guest moves to another QEMU
    #[command(
        after_help = "Examples:\n  carina bench restart --json > restart.json\n  carina bench \
        restart --cases migration-split --runs 3\n\nThe command needs root, or a system that \
        allows user namespaces."
    )]
    Restart(RestartArgs),
    /// Measure how fast many flows through one normal DIF are allocated, and how much memory they
    /// take
    #[command(after_help = "Examples:\n  carina bench flows --json > flows.json\n  \
        carina bench flows --flows 1000 --askers 1 --runs 5")]
    Flows(FlowsArgs),
    /// Measure unmodified programs whose TCP connections are flows; compare with TCP over the
    /// loopback interface, `carina expose` with `connect`, `carina proxy`, socat, ssh -L, pasta and
    /// slirp4netns
    #[command(
        after_help = "Examples:\n  carina bench wrap --json > wrap.json\n  carina bench wrap \
        --cases round-trips --sizes 64 --runs 9\n  carina bench wrap --cases \
        redis,wrk,connections\n  carina bench wrap --vm --cases http --sizes 1G\n\nCases: bulk, \
        round-trips (Python); iperf3; redis, redis-pipelined; wrk (with nginx); static, \
        static-round-trips (a static program); connections (a connection for each command of \
        redis); many-1, many-16, many-256 (`carina connect` beside other relays). Each case has \
        sizes of its own. Programs that are not \
        installed are left out (Debian: python3, iperf3, redis-server, redis-tools, nginx, wrk, \
        socat, openssh-server, passt, slirp4netns).\n\nCases with --vm: iperf3-to-host, \
        iperf3-to-guest, http, ssh; without --sizes, 64 MiB are transferred. The programs are \
        iperf3, curl with python3 -m http.server, and ssh with sshd. As root, or where user \
        namespaces are allowed."
    )]
    Wrap(WrapArgs),
    /// Measure TCP connections between two namespaces over `carina ip`; compare with a bare loop
    /// between two TUN interfaces, a veth pair with an MTU of 1500, boringtun, OpenVPN and tinc
    #[command(
        after_help = "Examples:\n  carina bench ip --json > ip.json\n  carina bench ip --cases \
        bulk --runs 9\n\nCases: bulk and round-trips (over shared memory); ethernet (between two \
        nodes, encrypted and not); path-loss (one of two paths is lost); move (a system moves to \
        another path). Without --sizes, messages have 65536 bytes. Programs that are not \
        installed are left out (`cargo install boringtun-cli`; Debian: openvpn, tinc). The command \
        needs root, or a system that allows user namespaces."
    )]
    Ip(IpArgs),
    /// Measure the bindings: messages in Python (compare with Unix sockets, asyncio, uvloop, pyzmq
    /// and zenoh) and net/http in Go (compare with TCP over the loopback interface)
    #[command(
        after_help = "Examples:\n  carina bench bindings --json > bindings.json\n  carina bench \
        bindings --cases python --sizes 1M --runs 9\n\nCases: python, python-asyncio, \
        python-asyncio-echo, go-http; without --sizes, messages have 64 and 1048576 bytes, \
        bodies of requests 64 and 16384. `make wheel` builds the Python package. Languages and \
        packages that are not installed are left out, and named in the notes."
    )]
    Bindings(BindingsArgs),
    /// Server of `carina bench flows`: register a name, and accept and hold all flows to it
    #[command(hide = true)]
    FlowsHolder {
        /// Application name to register
        name: AppName,
    },
    /// Client or server of `carina bench wrap`: a static program that uses TCP
    #[command(hide = true)]
    Tcp(TcpArgs),
    /// Repeat the measurements of Vrijders and others (2016) and Grasa and others (2017): VMs on
    /// one host and on two, the cost of a DIF, routing, mobility, an impaired network
    #[command(
        after_help = "Examples:\n  carina bench paper --json > paper.json\n  carina bench \
        paper --cases fig16.14 --runs 7 --out figures\n\nThe command needs root, or a system \
        that allows user namespaces: every measured system is a network namespace or a VM."
    )]
    Paper(PaperArgs),
    /// Client that `carina bench paper` starts in a VM or network namespace which it measures:
    /// reads a request in JSON, and prints each measurement as a line of JSON
    #[command(hide = true)]
    Client {
        /// JSON object that lists the measurements; `carina bench paper` makes this object when it
        /// starts this command
        request: String,
    },
}

/// Runs a command of `carina bench`.
///
/// # Errors
/// A program or permission is missing, or a measurement fails.
pub(crate) fn run(shared: &Shared, command: BenchCommand) -> Outcome {
    match command {
        BenchCommand::Hv(args) => hv_of(shared, args),
        BenchCommand::Flows(args) => {
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = flows::run(&FlowsOptions {
                flows: args.flows,
                concurrent: args.askers,
                runs: args.runs,
                progress: PROGRESS,
            })?;
            show_flows(shared, &results)
        }
        BenchCommand::Engine(args) => {
            let cases = chosen("case", &engine::CASES, |case| case.name, &args.cases)?;
            let options = args.options("engine", cases, &engine::SIZES, &ETHERNET_SIZES)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = engine::run(&options)?;
            show(shared, &results, &engine::TABLES, &engine::SYSTEMS)?;
            all_measured(&results)
        }
        BenchCommand::Lwaftr(args) => lwaftr_of(shared, args),
        BenchCommand::Vhost(args) => {
            let cases = chosen("case", &vhost::CASES, |case| case.name, &args.cases)?;
            let options = args.options("vhost", cases, &vhost::SIZES, &SIZES)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let results = vhost::run(&options)?;
            show(shared, &results, &vhost::TABLES, &vhost::SYSTEMS)?;
            all_measured(&results)
        }
        BenchCommand::Guest(args) => guest_of(shared, args),
        BenchCommand::Wrap(args) => wrap_of(shared, args),
        BenchCommand::Ip(args) => ip_of(shared, args),
        BenchCommand::Bindings(args) => bindings_of(shared, args),
        BenchCommand::Drivers(args) => drivers_of(shared, args),
        BenchCommand::Restart(args) => restart_of(shared, &args),
        BenchCommand::Tcp(args) => tcp_of(&args),
        BenchCommand::FlowsHolder { name } => Ok(flows::serve(&shared.node()?, &name)?),
        BenchCommand::Paper(args) => {
            vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
            end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
            let options = PaperOptions {
                cases: if args.cases.is_empty() {
                    Case::ALL.to_vec()
                } else {
                    args.cases.into_iter().map(Case::from).collect()
                },
                runs: args.runs.max(1),
                time_ns: args.time,
                sizes: args.sizes,
                guest_program: args.guest_program,
                progress: PROGRESS,
            };
            let results = paper::run(&options);
            if let Some(out) = &args.out {
                tables::write(&results, out)?;
            }
            show_paper(shared, &results)
        }
        BenchCommand::Client { request } => {
            let request: Request = serde_json::from_str(&request)
                .map_err(|error| usage(format!("the request: {error}")))?;
            request.execute(&shared.node()?, &mut |measurement| print_json(measurement))
        }
        BenchCommand::Local(args) => local(shared, args),
    }
}

fn hv_of(shared: &Shared, args: HvArgs) -> Outcome {
    let options = args.options()?;
    if args.hypervisor == Hypervisor::Xen {
        end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
        let results = xen::run(&options)?;
        show(shared, &results, &hv::TABLES, &xen::SYSTEMS)?;
        return all_measured(&results);
    }
    let network = vm_and_host::enter_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let (results, tables) = match args.crowd {
        None => (hv::run(&options, network)?, &hv::TABLES[..]),
        Some(flows) => (crowd::run(&options, network, flows)?, &crowd::TABLES[..]),
    };
    show(shared, &results, tables, &vm_and_host::SYSTEMS)?;
    all_measured(&results)
}

fn lwaftr_of(shared: &Shared, args: CaseArgs) -> Outcome {
    let cases = chosen("case", &lwaftr::CASES, |case| case.name, &args.cases)?;
    let options = args.options("lwaftr", cases, &lwaftr::SIZES, &ETHERNET_SIZES)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = lwaftr::run(&options)?;
    show(shared, &results, &lwaftr::TABLES, &lwaftr::SYSTEMS)?;
    all_measured(&results)
}

fn wrap_of(shared: &Shared, args: WrapArgs) -> Outcome {
    if args.vm {
        return wrap_vm_of(shared, args);
    }
    let args = args.cases;
    let cases = chosen("case", &wrap::CASES, |case| case.name, &args.cases)?;
    // Without sizes, each case has its own.
    let options = args.options("wrap", cases, &[], &wrap::SIZES_POSSIBLE)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = wrap::run(&options)?;
    show(shared, &results, &wrap::TABLES, &wrap::SYSTEMS)?;
    all_measured(&results)
}

fn tcp_of(args: &TcpArgs) -> Outcome {
    if args.serve {
        return Ok(wrap::serve_tcp(args.address)?);
    }
    let numbers = wrap::run_tcp_client(&args.job())?;
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    print_line(numbers.join(" "))
}

fn wrap_vm_of(shared: &Shared, args: WrapArgs) -> Outcome {
    use wrap::vm::{CASES, SIZES, SIZES_POSSIBLE, SYSTEMS, TABLES};
    let guest_program = args.guest_program;
    let cases = chosen("case", &CASES, |case| case.name, &args.cases.cases)?;
    let options = args
        .cases
        .options("wrap --vm", cases, &SIZES, &SIZES_POSSIBLE)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = wrap::vm::run(&options, guest_program.as_deref())?;
    show(shared, &results, &TABLES, &SYSTEMS)?;
    all_measured(&results)
}

fn ip_of(shared: &Shared, args: IpArgs) -> Outcome {
    let cases = chosen("case", &ip::CASES, |case| case.name, &args.cases.cases)?;
    let (sizes, possible) = (&ip::SIZES, &ip::SIZES_POSSIBLE);
    let options = args.cases.options("ip", cases, sizes, possible)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = ip::run(&options)?;
    show(shared, &results, &ip::TABLES, &ip::SYSTEMS)?;
    all_measured(&results)
}

fn bindings_of(shared: &Shared, args: BindingsArgs) -> Outcome {
    let cases = chosen(
        "case",
        &bindings::CASES,
        |case| case.name,
        &args.cases.cases,
    )?;
    let toolchains = args.toolchains();
    let possible = &bindings::SIZES_POSSIBLE;
    // Without sizes, each case has its own.
    let options = args.cases.options("bindings", cases, &[], possible)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = bindings::run(&options, &toolchains)?;
    show(shared, &results, &bindings::TABLES, &bindings::SYSTEMS)?;
    all_measured(&results)
}

fn drivers_of(shared: &Shared, args: DriversArgs) -> Outcome {
    let cases = chosen("case", &drivers::CASES, |case| case.name, &args.cases.cases)?;
    let (sizes, possible) = (&drivers::SIZES, &drivers::SIZES_POSSIBLE);
    let options = args.cases.options("drivers", cases, sizes, possible)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = drivers::run(&options, args.guest_program.as_deref())?;
    show(shared, &results, &drivers::TABLES, &drivers::SYSTEMS)?;
    all_measured(&results)
}

fn guest_of(shared: &Shared, args: GuestArgs) -> Outcome {
    let cases = chosen("case", &guest::CASES, |case| case.name, &args.cases.cases)?;
    let options = args
        .cases
        .options("guest", cases, &guest::SIZES, &guest::SIZES_POSSIBLE)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = guest::run(&options, args.guest_program.as_deref())?;
    show(shared, &results, &guest::TABLES, &guest::SYSTEMS)?;
    all_measured(&results)
}

fn restart_of(shared: &Shared, args: &RestartArgs) -> Outcome {
    let cases = chosen("case", &restart::CASES, |case| case.name, &args.cases)?;
    vm_and_host::require_network(args.in_network_namespace, PROGRESS)?;
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = restart::run(&RestartOptions {
        cases,
        runs: args.runs.max(1),
        progress: PROGRESS,
    })?;
    show(shared, &results, &restart::TABLES, &[OURS])
}

fn show_flows(shared: &Shared, results: &Results) -> Outcome {
    if shared.json {
        return print_json(results);
    }
    let table = flows::table(results);
    print_line(format!("{}\n\n{table}\n", results.machine))?;
    let mut notes = results.notes.iter();
    notes.try_for_each(|note| print_line(format!("- {note}")))
}

fn local(shared: &Shared, args: LocalArgs) -> Outcome {
    let sizes = if args.sizes.is_empty() {
        local::SIZES.to_vec()
    } else {
        args.sizes
    };
    if sizes.iter().any(|size| *size == 0 || *size > 262_144) {
        return Err(usage("sizes of `bench local` are 1 to 262144 bytes"));
    }
    let options = LocalOptions {
        runs: args.runs.max(1),
        time_ns: args.time,
        sizes,
        pin: args.pin.into(),
        progress: PROGRESS,
    };
    end_with_signal(shared.json).attempt(TAKING_SIGNALS)?;
    let results = local::run(&options)?;
    show(shared, &results, &local::TABLES, &local::SYSTEMS)?;
    all_measured(&results)
}

fn show_paper(shared: &Shared, results: &PaperResults) -> Outcome {
    if shared.json {
        print_line(tables::to_json(results)?)?
    } else {
        print_line(tables::to_text(results))?
    }
    all_measured(&results.results)
}
