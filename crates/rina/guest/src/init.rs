//! The first process of a guest. The kernel's command line configures it ([`CommandLine`]). It
//! keeps a shell on the console, the first serial port.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::agent;
use crate::cards::Cards;
use crate::command_line::CommandLine;
use crate::system::{self, Asked, Signals};

/// Sets up the guest, and keeps a shell on its console.
pub(crate) fn run() -> ! {
    system::set_environment(&[
        ("PATH", "/bin:/sbin:/usr/bin:/usr/sbin"),
        ("HOME", "/root"),
        ("TERM", "linux"),
    ]);
    let signals = Signals::hold();
    mount_all();
    set_given_environment();
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let line = CommandLine::new(line);
    complain(
        "setting the host name",
        system::set_host_name(line.value("name").unwrap_or("carina")),
    );
    // Linux repeats a request for a neighbour's MAC address after one second by default, which
    // would be the longest part of a probe.
    complain("writing", fs::write(ASK_AGAIN_MS, "100"));
    complain(
        "opening a socket",
        Cards::new().map(|cards| {
            if let Err(error) = cards.set_up("lo", true) {
                println!("carina: {error}");
            }
        }),
    );
    for module in line.modules() {
        load(module, &line);
    }
    if fs::exists(agent::PORT).unwrap_or_default() {
        complain(
            "starting the agent",
            system::in_child(|| {
                complain("serving the command port", agent::obey());
            })
            .map(drop),
        );
    }
    if line.is_set("node") {
        complain(
            "starting the node",
            system::with_signals(Command::new("sh").arg("/sbin/keep-node"))
                .spawn()
                .map(drop),
        );
    }
    let signals = match signals {
        Ok(signals) => signals,
        Err(error) => {
            println!("carina: cannot handle the signals that end this guest in order: {error}");
            loop {
                std::thread::park();
            }
        }
    };
    serve(&line, &signals)
}

/// Runs the command of the command line, and then keeps a shell on the console.
fn serve(line: &CommandLine, signals: &Signals) -> ! {
    if let Some(command) = line.command() {
        let mut shell = Command::new("sh");
        let child = shell.arg("-c").arg(command).stdin(Stdio::null());
        let child = system::with_signals(child).spawn();
        complain(
            "running a command",
            child.map(|child| wait_for(child.id(), signals)),
        );
        if line.is_set("off") {
            end(Asked::PowerOff);
        }
    }
    println!("carina: the guest is up");
    loop {
        match console_shell() {
            Ok(shell) => wait_for(shell, signals),
            Err(error) => println!("carina: no shell on the console: {error}"),
        }
        std::thread::sleep(AGAIN);
    }
}

/// Powers off or restarts the machine. Processes first get time to end; a node tells its peers that
/// it ends.
fn end(asked: Asked) {
    system::ask_all_to_end();
    let deadline = Instant::now() + END;
    // Processes whose parents have ended become children of this one.
    while system::take_ended().is_ok() && Instant::now() < deadline {
        std::thread::sleep(END_POLL);
    }
    complain("ending the machine", system::end_machine(asked));
}

fn mount_all() {
    for directory in ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var"] {
        complain("making a directory", fs::create_dir_all(directory));
    }
    if system::mount_at("devtmpfs", "/dev", "").is_err() {
        complain("mounting /dev", system::mount_at("tmpfs", "/dev", ""));
    }
    for (kind, target, data) in [
        ("proc", "/proc", ""),
        ("sysfs", "/sys", ""),
        ("devpts", "/dev/pts", ""),
        ("tmpfs", "/dev/shm", "size=75%"),
        ("tmpfs", "/run", ""),
        ("tmpfs", "/tmp", ""),
    ] {
        let done = fs::create_dir_all(target);
        let done = done.and_then(|()| system::mount_at(kind, target, data));
        complain(target, done);
    }
}

/// Sets the variables of the machine's own file, for all processes of the guest.
fn set_given_environment() {
    let text = fs::read_to_string("/etc/environment").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    system::set_environment(&lines.collect::<Vec<_>>());
}

/// Loads a module and, before it, its dependencies.
fn load(module: &str, line: &CommandLine) {
    let Ok(files) = fs::read_to_string(format!("/lib/carina/{module}")) else {
        println!("carina: the image lacks the module {module}");
        return;
    };
    for path in files.lines() {
        let file = path.rsplit('/').next().unwrap_or_default();
        let name = file.strip_suffix(".ko").unwrap_or(file).replace('-', "_");
        let parameters = CString::new(line.parameters(&name)).unwrap_or_default();
        let done = File::open(path).and_then(|file| system::load_module(&file, &parameters));
        if let Err(error) = done {
            println!("carina: cannot load {path}: {error}");
        }
    }
}

/// Starts a shell whose terminal is the console. Returns its process id.
fn console_shell() -> io::Result<u32> {
    let mut command = Command::new("sh");
    command.arg("-l");
    // /dev/console itself cannot be the terminal of a session, so the device behind it is opened.
    let active = fs::read_to_string("/sys/class/tty/console/active").unwrap_or_default();
    if let Some(name) = active.split_whitespace().last() {
        let terminal = system::open_terminal(&format!("/dev/{name}"))?;
        command.stdin(terminal.try_clone()?);
        command.stdout(terminal.try_clone()?);
        command.stderr(terminal);
    }
    system::with_terminal(&mut command)
        .spawn()
        .map(|shell| shell.id())
}

/// Waits for the end of a child. Meanwhile reaps all other ended processes.
fn wait_for(child: u32, signals: &Signals) {
    loop {
        match system::take_ended() {
            Ok(Some(ended)) if ended.unsigned_abs() == child => return,
            Ok(Some(_)) => {}
            Ok(None) => match signals.wait() {
                Asked::Reap => {}
                asked => end(asked),
            },
            Err(_) => return,
        }
    }
}

/// Prints an error on the console. The guest continues without what has failed.
fn complain(what: &str, done: io::Result<()>) {
    if let Err(error) = done {
        println!("carina: {what}: {error}");
    }
}

const ASK_AGAIN_MS: &str = "/proc/sys/net/ipv4/neigh/default/retrans_time_ms";
const AGAIN: Duration = Duration::from_millis(200);
/// How long processes may take to end before the machine does. A node takes a second.
const END: Duration = Duration::from_secs(3);
const END_POLL: Duration = Duration::from_millis(20);
