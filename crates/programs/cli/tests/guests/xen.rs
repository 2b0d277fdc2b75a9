//! VMPI over Xen, on real parts: a machine under QEMU boots Debian's Xen with Carina's guest as
//! Dom0; `carina vm run --hypervisor xen` starts domains there.
//!
//! Each test boots Xen once. One test alone: `cargo test -p carina-cli --test guests
//! xen::link_comes_back -- --ignored`. With `CARINA_XEN_CPU=qemu64,+svm,+npt`, QEMU emulates what
//! PVH domains need; domains then are PVH, otherwise PV.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use self::dom0::{Dom0, Extras, xen_host};
use crate::house::{CARINA, until};

mod dom0;

#[test]
#[ignore = "boots three domains under an emulated Xen: ten minutes or more"]
fn nodes_in_domains_of_xen_form_flows_and_survive_kills() {
    let Some(dom0) = Dom0::boot() else { return };
    dom0.starts_node();
    let channels = dom0.channels();
    dom0.runs_domain("a");
    dom0.runs_domain("b");
    domains_are_reached_by_name(&dom0);
    domains_reach_each_other_through_a_normal_dif(&dom0);
    node_of_dom0_is_killed(&dom0);
    node_of_a_domain_is_killed(&dom0);
    domain_is_destroyed(&dom0);
    user_gets_lines_for_a_domain_of_their_own(&dom0);
    nothing_is_left(&dom0, channels);
}

#[test]
#[ignore = "boots a domain under an emulated Xen: five minutes or more"]
fn link_comes_back_after_save_and_restore() {
    let Some(dom0) = Dom0::boot() else { return };
    dom0.starts_node();
    dom0.runs_domain("a");
    dom0.pings("echo.a", "1400", 5);
    dom0.does("mkdir /save && mount -t tmpfs -o size=400m save /save");
    // The second time the node has event channels of a restored domain.
    for _ in 0..2 {
        dom0.does("xl save a /save/a");
        dom0.until(
            "the link of a is down",
            "carina ipcp list | grep -w a | grep -qw down",
        );
        dom0.does("xl restore /save/a && rm /save/a");
        // The application has run on in the domain.
        dom0.pings("echo.a", "1400", 20);
    }
    // The kernel of a restored domain has lost event channels that the node had. To close one of
    // them would stop the node, now or when it ends.
    kill_the_node_of_a(&dom0);
    dom0.in_domain("a", "! dmesg | grep -q 'kernel BUG'");
    dom0.does("carina vm stop a");
}

#[test]
#[ignore = "boots an emulated Xen: five minutes or more"]
fn conformance_suite_of_vmpi_passes_over_grants() {
    let Some(xen) = xen_host() else { return };
    let own = std::env::current_exe().unwrap();
    let listed = Command::new(&own).args(["--list", "grants::"]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let cases = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let dom0 = Dom0::boot_with(
        &xen,
        &Extras {
            programs: &[("/bin/suite", &own)],
            ..Extras::default()
        },
    );
    let channels = dom0.channels();
    let suite = "/bin/suite --ignored --test-threads 1 grants:: 2>&1; true";
    let printed = dom0.does_within(suite, SUITE);
    let (passed, failed): (Vec<&str>, Vec<&str>) =
        cases.partition(|case| printed.contains(&format!("test {case} ... ok\n")));
    for (outcome, cases) in [("passed", &passed), ("failed", &failed)] {
        for case in cases {
            println!("{outcome}: {case}");
        }
    }
    println!("{} passed, {} failed", passed.len(), failed.len());
    assert!(failed.is_empty() && !passed.is_empty(), "{printed}");
    assert_eq!(dom0.channels(), channels);
    assert_eq!(dom0.mapped_grants(), 0);
}

#[test]
#[ignore = "boots a domain under an emulated Xen: five minutes or more"]
fn grants_are_measured_beside_other_systems() {
    let Some(xen) = xen_host() else { return };
    let directory = tempfile::tempdir().unwrap();
    let vchan = compiled_vchan(directory.path(), &xen.libraries());
    let tools = Path::new(CARINA).with_file_name("carina-tools");
    let mut programs = vec![("/bin/carina-tools", tools.as_path())];
    programs.extend(vchan.as_deref().map(|path| ("/bin/carina-vchan", path)));
    let dom0 = Dom0::boot_with(
        &xen,
        &Extras {
            programs: &programs,
            modules: &["xen_netback", "bridge"],
            of_domains: &["xen_netfront"],
        },
    );
    let options = std::env::var("CARINA_XEN_BENCH").unwrap_or_else(|_| BENCH.to_owned());
    let command = format!(
        "carina --json bench hv --hypervisor xen {options} 2>/tmp/bench.log || \
         {{ cat /tmp/bench.log >&2; tail -n 8 /var/log/xen/*.log >&2; exit 1; }}"
    );
    let printed = dom0.does_within(&command, MEASURED);
    println!("{printed}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(printed["failures"], Value::Null);
    let rows = printed["rows"].as_array().unwrap();
    let systems = ["xen", "limit", "netfront", "libxenvchan"];
    let has_vchan = usize::from(vchan.is_some());
    for system in &systems[..3 + has_vchan] {
        for metric in ["goodput_mbps", "rtt_us"] {
            let mut measured = rows
                .iter()
                .filter(|row| row["system"] == *system && row["metric"] == metric);
            assert!(
                measured.any(|row| row["median"].as_f64() > Some(0.0)),
                "{system}, {metric}"
            );
        }
    }
}

/// Compiles the program that measures libxenvchan; `None` without a compiler of C.
fn compiled_vchan(directory: &Path, libraries: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bench/src/vchan.c");
    let program = directory.join("carina-vchan");
    let mut compiler = Command::new("cc");
    compiler.arg("-O2").arg("-o").arg(&program).arg(source);
    compiler.arg(libraries.join("libxenvchan.so.4.17"));
    // Its own libraries are found when it runs.
    compiler.arg("-Wl,--allow-shlib-undefined");
    match compiler.status() {
        Ok(status) => {
            assert!(status.success(), "{compiler:?}");
            Some(program)
        }
        Err(error) => {
            println!("SKIP of libxenvchan: cc: {error}");
            None
        }
    }
}

/// How long the conformance suite may take.
const SUITE: Duration = Duration::from_secs(1800);
/// How long the benchmark may take, with the options of a user.
const MEASURED: Duration = Duration::from_secs(3600);
/// Options of the benchmark that show that each system is measured. For figures, see
/// `docs/reference/benchmarks.md`.
const BENCH: &str = "--runs 1 --time 500ms";

fn domains_are_reached_by_name(dom0: &Dom0) {
    for (size, count) in [("0", 3), ("64", 30), ("1400", 30), ("64K", 5), ("1M", 2)] {
        for domain in ["a", "b"] {
            dom0.pings(&format!("echo.{domain}"), size, count);
        }
    }
    dom0.starts("carina ping --listen echo.host");
    dom0.in_domain(
        "a",
        "carina ping echo.host --wait 200s -c 10 -i 1ms -q -s 1400 -W 200s",
    );
}

/// Figure 4b of "Reducing Complexity of Virtual Machine Networking", on Xen.
fn domains_reach_each_other_through_a_normal_dif(dom0: &Dom0) {
    dom0.does("carina dif create net --over hv.a,hv.b");
    for domain in ["a", "b"] {
        let join = format!("carina dif join net --over hv.{domain} --wait 200s");
        dom0.in_domain(domain, &join);
    }
    dom0.in_domain("b", "(carina ping --listen inner.b >/tmp/inner.log 2>&1 &)");
    dom0.in_domain(
        "a",
        "carina ping inner.b --wait 200s -c 10 -i 1ms -q -s 1400 -W 200s",
    );
    for domain in ["a", "b"] {
        dom0.in_domain(domain, "carina dif leave net");
    }
    dom0.does("carina dif leave net");
}

fn node_of_dom0_is_killed(dom0: &Dom0) {
    dom0.does("kill -9 $(cat /run/node.pid)");
    dom0.starts_node();
    dom0.pings("echo.a", "1400", 20);
}

fn node_of_a_domain_is_killed(dom0: &Dom0) {
    kill_the_node_of_a(dom0);
    // The other domain has noticed nothing.
    dom0.pings("echo.b", "64", 5);
}

fn kill_the_node_of_a(dom0: &Dom0) {
    // The guest's first process restarts the node.
    dom0.in_domain(
        "a",
        "kill -9 $(pidof carina | tr ' ' '\\n' | sort -n | head -n 1)",
    );
    dom0.until(
        "the name of the killed node is gone",
        "! carina app list | grep -qw echo.a",
    );
    dom0.in_domain(
        "a",
        "(carina ping --listen echo.again --wait 200s >/tmp/again.log 2>&1 &)",
    );
    dom0.pings("echo.again", "1400", 20);
}

fn domain_is_destroyed(dom0: &Dom0) {
    let id = dom0.does("xl domid b");
    let path = format!("/local/domain/{}", id.trim());
    dom0.does("xl destroy b");
    dom0.until(
        "the destroyed domain is gone, which needs its memory unmapped",
        "! xl list | tail -n +3 | grep -qw -e b -e '(null)'",
    );
    dom0.does(&format!("! xenstore-read {path}"));
    dom0.until(
        "the link of b is down",
        "carina ipcp list | grep -w b | grep -qw down",
    );
    // The port waits for a domain of the same name.
    dom0.does(
        "carina vm run b --hypervisor xen --memory 200 --command \
         'carina ping --listen echo.b2 --wait 200s >/tmp/echo.log 2>&1 &'",
    );
    dom0.pings("echo.b2", "1400", 10);
    dom0.does("carina vm stop b");
}

fn user_gets_lines_for_a_domain_of_their_own(dom0: &Dom0) {
    let lines = dom0.does("carina vm args own --vmpi xen");
    assert!(lines.contains("name = \"own\""), "{lines}");
    dom0.does("carina vm stop own");
}

/// After all domains have ended, Dom0 has as many event channels as before, maps no grant, and the
/// xenstore has no directory of a domain.
fn nothing_is_left(dom0: &Dom0, channels: usize) {
    dom0.does("carina vm stop a");
    dom0.until(
        "only Dom0 runs",
        "test $(xl list | tail -n +2 | wc -l) = 1 && \
         test \"$(xenstore-list /local/domain)\" = 0",
    );
    dom0.does("kill $(cat /run/node.pid); wait");
    let left = until(Duration::from_secs(30), || {
        (dom0.channels() <= channels).then_some(())
    });
    assert!(
        left.is_some(),
        "{} channels, {channels} before",
        dom0.channels()
    );
    assert_eq!(dom0.mapped_grants(), 0);
}
