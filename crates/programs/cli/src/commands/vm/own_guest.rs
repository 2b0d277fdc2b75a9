//! What guests get from `carina vm run`: programs, a node with its configuration, an sshd, and the
//! proxy of `--internet`.

use std::time::Duration;

use carina_api::control::{VmInfo, VmpiKind};
use carina_topology::hv_ipcp;
use carina_vm::{CloudSeed, Image, Machine, Running, SshKeys};
use carina_wrap::library::{LIBRARY, library_of};

use super::vsock::HOST_PORT;
use super::{BOOT, RunArgs, ip_link};
use crate::Shared;
use crate::commands::ssh;
use crate::failure::{Attempt, Failure, Outcome, failed};

/// Adds the programs of `--program`, and sshd with `--ssh`, to the guest's image. If programs are
/// added, also adds the certificate authorities that this host trusts, and the library by which
/// `carina wrap` runs them.
pub(super) fn with_programs(mut image: Image, args: &RunArgs) -> Result<Image, Failure> {
    for program in &args.program {
        let what = format!("--program {}", program.display());
        let path = std::path::absolute(program).attempt(&what)?;
        image = image
            .program(&path.to_string_lossy(), &path)
            .attempt(&what)?;
    }
    if !args.program.is_empty() {
        image = with_wrap(image)?;
    }
    if args.ssh {
        image = image.ssh_server().attempt("packing sshd for --ssh")?;
    }
    let has_clients = !args.internet.is_empty() || !args.program.is_empty();
    if has_clients && let Ok(authorities) = std::fs::read(AUTHORITIES) {
        image = image.file(AUTHORITIES, 0o644, authorities);
    }
    Ok(image)
}

/// Adds the library that `carina wrap` loads into programs. A build of `carina` alone has none.
fn with_wrap(image: Image) -> Result<Image, Failure> {
    let own = std::env::current_exe().attempt("finding this program")?;
    match library_of(&own) {
        Some(library) => {
            let packed = image.library(&format!("/lib/carina/{LIBRARY}"), &library);
            packed.attempt(format!("packing {}", library.display()))
        }
        None => Ok(image),
    }
}

/// Puts the node, and what its programs need to find the proxy of `--internet`, into the guest.
pub(super) fn furnish(machine: Machine, info: &VmInfo, args: &RunArgs) -> Result<Machine, Failure> {
    let mut machine = machine.node_config(&guest_config(info, args.ssh)?);
    // The node may have the addresses and the rules from its configuration file.
    if info.ip.is_some() {
        machine = ip_link::furnish(machine, &args.dns);
    }
    if info.internet.is_some() {
        machine = machine.environment(&PROXY).file(APT_FILE, 0o644, APT);
    }
    Ok(machine)
}

/// Gives a guest from a disk a node, keys for ssh, and what its programs need to find the proxy of
/// `--internet`, by cloud-init in its image.
pub(super) fn seed(machine: Machine, info: &VmInfo, keys: &SshKeys) -> Result<Machine, Failure> {
    let program = std::env::current_exe().attempt("finding this program")?;
    let has_proxy = info.internet.is_some();
    let apt = [(APT_FILE, APT.to_owned())];
    let seed = CloudSeed {
        program: &program,
        node_config: &guest_config(info, true)?,
        keys,
        files: if has_proxy { &apt } else { &[] },
        environment: if has_proxy { &PROXY } else { &[] },
    };
    let machine = machine.cloud_seed(&seed);
    machine.attempt("making the volume for cloud-init in the guest")
}

/// The configuration file of the node in the guest.
pub(super) fn guest_config(info: &VmInfo, has_ssh: bool) -> Result<String, Failure> {
    let dif = serde_json::to_string(info.dif.as_str()).unwrap_or_default();
    let mut text = hv_ipcp(0, info.dif.as_str());
    if info.vmpi == VmpiKind::Vsock {
        text.push_str(&format!("vsock = {HOST_PORT}\n"));
    }
    if let Some(proxy) = &info.internet {
        let name = &proxy.name;
        text.push_str(&format!(
            "[[connect]]\nname = \"{name}\"\ndif = {dif}\nlisten = \"tcp:{PROXY_ADDRESS}\"\n"
        ));
    }
    if has_ssh {
        let name = ssh::server_of(info.name.as_str());
        text.push_str(&format!(
            "[[expose]]\nname = \"{name}\"\ndif = {dif}\nto = \"tcp:127.0.0.1:22\"\n"
        ));
    }
    if let Some(link) = &info.ip {
        text.push_str(&ip_link::table(info, link)?);
    }
    Ok(text)
}

/// Waits until the guest can be used as the options ask: until its sshd listens and the node of
/// this host knows the sshd's name, and until its programs reach the proxy of `--internet`.
pub(super) fn wait_for_services(
    shared: &Shared,
    running: &Running,
    info: &VmInfo,
    has_ssh: bool,
) -> Outcome {
    let vm = info.name.as_str();
    if let Some(proxy) = &info.internet {
        wait_for_listener(running, vm, "the proxy", PROXY_PORT, "/var/log/carina.log")?;
        ssh::wait_for_name(shared, vm, proxy.name.as_str(), NAME_LIMIT)?;
    }
    if has_ssh {
        wait_for_listener(running, vm, "sshd", SSH_PORT, "/var/log/sshd.log")?;
        ssh::wait_for_name(shared, vm, &ssh::server_of(vm), NAME_LIMIT)?;
    }
    Ok(())
}

fn wait_for_listener(running: &Running, vm: &str, what: &str, port: u16, log: &str) -> Outcome {
    let reply = running.run_within(&carina_vm::await_listener(port, log), BOOT);
    let reply = reply.attempt(format!("waiting for {what} in VM {vm}"))?;
    if reply.is_success() {
        return Ok(());
    }
    let end = reply.error_text();
    Err(failed(format!(
        "{what} in VM {vm} does not listen on port {port}; the end of {log} in the guest: {end}"
    )))
}

/// The certificate authorities that programs trust (Debian's package ca-certificates).
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Where the proxy of `--internet` listens in the guest.
const PROXY_ADDRESS: &str = "127.0.0.1:3128";

/// The variables by which programs in the guest find that proxy.
const PROXY: [(&str, &str); 3] = [
    ("http_proxy", "http://127.0.0.1:3128"),
    ("https_proxy", "http://127.0.0.1:3128"),
    ("no_proxy", "localhost,127.0.0.1,::1"),
];

/// Configuration file of apt with the address of the proxy. Callers of apt may lack the variables.
const APT_FILE: &str = "/etc/apt/apt.conf.d/90carina";
const APT: &str = "Acquire::http::Proxy \"http://127.0.0.1:3128\";\n\
    Acquire::https::Proxy \"http://127.0.0.1:3128\";\n";

/// How long a name that the guest registers may take to be known to the node of this host.
const NAME_LIMIT: Duration = Duration::from_secs(60);

/// Ports in the guest.
const SSH_PORT: u16 = 22;
const PROXY_PORT: u16 = 3128;
