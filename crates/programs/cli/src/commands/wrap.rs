//! `carina wrap`: a program whose connections are flows.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use carina_api::DifName;
use carina_text::table::Table;
use carina_wrap::calls::Wrap;
use carina_wrap::drops;
use carina_wrap::library::{DIRECTORY, LIBRARY, library_of};
use carina_wrap::name_table::is_host;
use carina_wrap::program::{Linkage, ProgramError, find, linkage};
use carina_wrap::relay;
use carina_wrap::rule::Rule;
use carina_wrap::settings::{Settings, VARIABLE};
use carina_wrap::supervisor::{self, StartError};

use crate::Shared;
use crate::commands::rules;
use crate::failure::{Attempt, Failure, Outcome, failed, refused};
use crate::report::{print_json, print_line};

/// Run a program whose TCP connections become flows, without changing the program
///
/// Rules say which connections become flows. Connections that no rule matches stay with the kernel.
/// The program's children are wrapped as well.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  carina wrap --as web.vm nginx -g 'daemon off;'     its \
    port 80 is the name web.vm:80\n  carina wrap curl http://web.vm.dif.internal/       a flow \
    to web.vm:80\n  carina wrap --rule '*.vm -> dif' ssh db.vm         a flow to db.vm:22\n  \
    carina wrap --rule '10.9.0.0/16 -> dif' ./static   a static program, by address\n\nA rule is \
    HOST[:PORTS] -> TARGET. HOST is *, a name with wildcards, an address or\nADDRESS/LENGTH. \
    PORTS is 80 or 80-89. TARGET is dif [DIF] [as NAME], kernel or refuse.\nIn NAME, {host} and \
    {port} are replaced, and {name} by the host without .dif.internal;\nwithout NAME it is \
    {host}:{port}. A rule that begins with `listen` is for the addresses\non which the program \
    listens. The first rule that matches applies."
)]
pub(crate) struct WrapArgs {
    /// Rule that says which connections become flows, such as '*.vm -> dif net' (see below); may be
    /// repeated [default: '*.dif.internal -> dif as {name}:{port}']
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<Rule>,
    /// Name of this host in the DIF, such as web.vm. A port on which the program listens at a
    /// wildcard address (0.0.0.0 or ::) is registered as the name HOST:PORT in place of a port of
    /// the kernel. The program's flows have HOST as their caller [default: no port is registered;
    /// the caller is the name of this system]
    #[arg(long = "as", value_name = "HOST", value_parser = host_name)]
    host: Option<String>,
    /// With --as: DIF in which to register the ports [default: all DIFs of this system]
    #[arg(long, requires = "host")]
    dif: Option<DifName>,
    /// How system calls of the program are redirected: preload loads a library into the program;
    /// with seccomp the kernel stops the program at each such call, and this command carries it out
    /// [default: preload for a dynamic program, seccomp for a static one]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Take the settings from the environment, and PROGRAM as a path, not as a name to look up in
    /// PATH. A wrapped program starts `carina wrap` with this option when it starts a static
    /// program
    #[arg(long, hide = true)]
    inherited: bool,
    /// With --inherited: argument 0 of the program
    #[arg(long, hide = true, requires = "inherited", allow_hyphen_values = true)]
    arg0: Option<OsString>,
    /// Carry datagrams between one UDP socket of a wrapped program and flows, one flow for each
    /// peer. Standard input is one end of a socket pair, of which the program has the other; the
    /// environment has the settings of `carina wrap`
    #[arg(long, hide = true)]
    relay: bool,
    /// Print how many datagrams of sockets with several peers were dropped, for each reason, by
    /// this user's wrapped programs with this node; run no program
    #[arg(long, conflicts_with_all = ["relay", "program"])]
    drops: bool,
    /// Program to run, with its arguments
    #[arg(
        required_unless_present_any = ["relay", "drops"],
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

fn host_name(text: &str) -> Result<String, String> {
    if is_host(text) {
        return Ok(text.to_owned());
    }
    Err("a host's name has 1 to 253 letters, digits, dots, hyphens and underscores".to_owned())
}

/// How system calls of a wrapped program are redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Load a library into the program, which redirects its calls (dynamic programs)
    Preload,
    /// Let the kernel stop the program at each call; this command carries it out (any program)
    Seccomp,
}

/// Replaces this process with the program, which gets the library for flows. For a static program
/// or with `--kind seccomp`, starts the program as a child, carries out its socket calls, and exits
/// with its exit code.
///
/// # Errors
/// The program cannot be wrapped, or no node runs.
pub(crate) fn run(shared: &Shared, args: WrapArgs) -> Outcome {
    if args.relay {
        return run_relay();
    }
    if args.inherited {
        return run_inherited(&args);
    }
    if args.drops {
        return print_drops(shared);
    }
    let name = args.program[0].to_string_lossy();
    let path = std::env::var("PATH").unwrap_or_default();
    let program = find(&name, &path).map_err(not_wrapped)?;
    let linkage = linkage(&program).map_err(not_wrapped)?;
    match (linkage, args.kind) {
        (Linkage::Static, None) | (_, Some(Kind::Seccomp)) => {
            return supervise(shared, &args, &program);
        }
        (Linkage::Static, Some(Kind::Preload)) => {
            return Err(refused(format!(
                "{}: a static program cannot load a library; omit --kind preload",
                program.display()
            )));
        }
        (Linkage::Dynamic, _) => {}
    }
    let library = library()?;
    shared.node()?;
    let settings = settings(shared, &args)?;
    let mut command = Command::new(&program);
    command
        .arg0(&args.program[0])
        .args(&args.program[1..])
        .env(VARIABLE, settings.encode().attempt("passing the rules on")?)
        .env("LD_PRELOAD", preloaded(&library));
    Err(starting(&program, &command.exec()))
}

/// Starts the program and carries out its calls. Its exit code becomes that of this process.
fn supervise(shared: &Shared, args: &WrapArgs, program: &Path) -> Outcome {
    shared.node()?;
    let wrap = Wrap::new(settings(shared, args)?);
    let shown = program.display();
    match supervisor::run(command_of(args, program), wrap) {
        Ok(code) => std::process::exit(code.into()),
        Err(StartError::Command(error)) => Err(starting(program, &error)),
        Err(StartError::Supervised) => Err(refused(format!(
            "{shown} is not started: this command runs under another seccomp supervisor \
             (perhaps another `carina wrap`), and Linux allows only one; start the program \
             outside of that supervisor"
        ))),
        Err(StartError::Kernel(release)) => Err(refused(format!(
            "{shown} is not started: Linux {release} has no seccomp notifications that pass \
             descriptors; a static program needs Linux 5.14 with CONFIG_SECCOMP_FILTER"
        ))),
        Err(error) => Err(failed(format!("{shown}: installing the filter: {error}"))),
    }
}

/// Relays the datagrams of a socket with many peers until the program closes it.
fn run_relay() -> Outcome {
    let end = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), MIN_FD);
    let end = end.attempt("using standard input as the end of a socket")?;
    let wrap = Wrap::new(inherited_settings()?);
    // A socket has as many flows as peers.
    let _ = carina_sys::raise_nofile_limit();
    relay::serve(end, wrap).attempt("relaying datagrams")
}

fn print_drops(shared: &Shared) -> Outcome {
    let names = rules::name_table(shared)?;
    let counts = drops::read(names.path()).attempt("reading the counts of dropped datagrams")?;
    if shared.json {
        return print_json(&counts);
    }
    let mut table = Table::new(["REASON", "DATAGRAMS"]);
    for (reason, count) in counts {
        table.row([reason, count.to_string()]);
    }
    print_line(table)
}

fn inherited_settings() -> Result<Settings, Failure> {
    let settings = std::env::var(VARIABLE).attempt("reading the rules")?;
    Settings::decode(&settings).attempt("reading the rules")
}

/// Supervises a static program that a wrapped program starts. Where that is impossible, the program
/// runs unsupervised, because its caller relies on it.
fn run_inherited(args: &WrapArgs) -> Outcome {
    let program = Path::new(&args.program[0]);
    let settings = inherited_settings()?;
    match supervisor::run(command_of(args, program), Wrap::new(settings)) {
        Ok(code) => std::process::exit(code.into()),
        Err(StartError::Command(error)) => Err(starting(program, &error)),
        Err(error) => {
            let shown = program.display();
            eprintln!("carina wrap: the static program {shown} is not wrapped: {error}");
            Err(starting(program, &command_of(args, program).exec()))
        }
    }
}

/// The command of a program that is supervised.
fn command_of(args: &WrapArgs, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg0(args.arg0.as_ref().unwrap_or(&args.program[0]));
    command.args(&args.program[1..]);
    // The library would take the supervisor's answers for the kernel's.
    command.env_remove(VARIABLE);
    match others_preloaded() {
        Some(others) => command.env("LD_PRELOAD", others),
        None => command.env_remove("LD_PRELOAD"),
    };
    command
}

fn starting(program: &Path, error: &std::io::Error) -> Failure {
    failed(format!("starting {}: {error}", program.display()))
}

/// The value of `LD_PRELOAD` without Carina's own library; `None` if no other library is in it.
fn others_preloaded() -> Option<OsString> {
    let value = std::env::var_os("LD_PRELOAD")?;
    let is_separator = |byte: &u8| b": ".contains(byte);
    let others = value.as_bytes().split(is_separator).filter(|library| {
        let name = library.rsplit(|byte| *byte == b'/').next();
        !library.is_empty() && name != Some(LIBRARY.as_bytes())
    });
    let others = others.collect::<Vec<_>>().join(&b':');
    (!others.is_empty()).then(|| OsString::from_vec(others))
}

fn settings(shared: &Shared, args: &WrapArgs) -> Result<Settings, Failure> {
    let mut rules = args.rules.clone();
    rules::check(&rules)?;
    if let Some(host) = &args.host {
        let wildcards = [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
        ];
        rules.extend(wildcards.map(|address| Rule::listen_as(address, host, args.dif.clone())));
    }
    if args.rules.is_empty() {
        rules.push(rules::default_rule()?);
    }
    warn_of_unknown_difs(shared, &rules);
    let names = rules::name_table(shared)?;
    let socket =
        std::path::absolute(shared.run_dir().ipc_sock()).attempt("finding the node's socket")?;
    let of_system = || {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    };
    Ok(Settings {
        rules,
        node: socket,
        names: names.path().to_owned(),
        host: args.host.clone().unwrap_or_else(of_system),
        carina: std::env::current_exe().ok(),
    })
}

/// Warns of rules with a DIF of which this system is no member. It may join the DIF while the
/// program runs.
fn warn_of_unknown_difs(shared: &Shared, rules: &[Rule]) {
    let named: BTreeSet<&DifName> = rules.iter().filter_map(Rule::dif).collect();
    if named.is_empty() {
        return;
    }
    // A user who may not ask the node may still run programs.
    let Ok(difs) = shared.control().difs() else {
        return;
    };
    let of_system: Vec<&str> = difs.iter().map(|dif| dif.name.as_str()).collect();
    for dif in named {
        if !of_system.contains(&dif.as_str()) {
            eprintln!(
                "carina wrap: warning: this system is in no DIF {dif} (it is in: {}); until it \
                 joins, connections by a rule with this DIF fail with EHOSTUNREACH",
                of_system.join(", ")
            );
        }
    }
}

/// The new value of `LD_PRELOAD`: `library`, followed by the libraries that it already contains.
fn preloaded(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

/// Path of the library to load into programs: that of `CARINA_PRELOAD` if it is set, otherwise the
/// one in the directory of this program, otherwise the installed one.
fn library() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        return checked(PathBuf::from(path));
    }
    let program = std::env::current_exe().attempt("finding this program")?;
    match library_of(&program) {
        Some(found) => checked(found.canonicalize().attempt("finding the library")?),
        None => Err(failed(format!(
            "the library that is loaded into programs, {LIBRARY}, is neither beside {} nor in \
             {DIRECTORY}; reinstall carina, or set {LIBRARY_VARIABLE} to the path of the library",
            program.display(),
        ))),
    }
}

/// Checks that `library` is a file whose path `LD_PRELOAD` can contain: the dynamic linker splits
/// the value at colons and spaces.
fn checked(library: PathBuf) -> Result<PathBuf, Failure> {
    let bytes = library.as_os_str().as_bytes();
    if !library.is_file() {
        return Err(failed(format!("{} is no file", library.display())));
    }
    if bytes.iter().any(|byte| b": ".contains(byte)) {
        return Err(failed(format!(
            "{}: the dynamic linker does not accept a path with a space or a colon",
            library.display()
        )));
    }
    Ok(library)
}

fn not_wrapped(error: ProgramError) -> Failure {
    refused(format!("the program is not started: {error}"))
}

/// Lowest number of a descriptor after the three standard ones.
const MIN_FD: i32 = 3;

/// Environment variable with the path of the library, if it is in another place.
const LIBRARY_VARIABLE: &str = "CARINA_PRELOAD";
