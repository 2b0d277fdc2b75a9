//! Test of `carina wrap` in a guest without a network card: its client, unmodified, reaches a
//! wrapped server of the host.

use std::fs;

use crate::house::{Host, told};

#[test]
fn wrapped_program_in_a_guest_reaches_one_on_its_host() {
    let host = Host::start();
    let site = host.run_dir().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("page"), "hello\n").unwrap();
    let vm = host.vm_run("a", &["--program", "/usr/bin/curl"]);
    let site = site.to_str().unwrap();
    let server = ["python3", "-m", "http.server", "8080", "--directory", site];
    let _server = host.in_background(&[&["wrap", "--as", "web"], &server[..]].concat());
    host.until_reachable("web:8080");
    let curl = "carina wrap curl -sS --retry 60 --retry-all-errors --retry-delay 1 \
        http://web.dif.internal:8080/page";
    let got = host.carina(&["vm", "exec", "a", "sh", "-c", curl]);
    assert_eq!(
        String::from_utf8_lossy(&got.stdout),
        "hello\n",
        "{}",
        told(&got)
    );
    let cards = host.carina(&["vm", "exec", "a", "ls", "/sys/class/net"]);
    assert_eq!(told(&cards), "lo\n");
    vm.stop();
}
