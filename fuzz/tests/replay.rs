//! Replays every corpus, and seeded mutations of it, through its target.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carina_random::SplitMix;

/// Mutations of each file of a corpus.
const MUTATIONS: u64 = 200;

#[test]
fn ring_consumer_survives_its_corpus() {
    replay("ring_consumer", carina_fuzz::ring_consumer, MUTATIONS);
}

#[test]
fn vring_device_survives_its_corpus() {
    replay("vring_device", carina_fuzz::vring_device, 5 * MUTATIONS);
}

#[test]
fn vring_driver_survives_its_corpus() {
    replay("vring_driver", carina_fuzz::vring_driver, 5 * MUTATIONS);
}

#[test]
fn nic_rings_survives_its_corpus() {
    replay("nic_rings", carina_fuzz::nic_rings, MUTATIONS);
    accepts_what_is_good("nic_rings", carina_fuzz::receives_nic_rings);
}

#[test]
fn nic_device_survives_its_corpus() {
    replay("nic_device", carina_fuzz::nic_device, 5 * MUTATIONS);
    accepts_what_is_good("nic_device", carina_fuzz::reads_nic_device);
}

#[test]
fn vhost_user_survives_its_corpus() {
    replay("vhost_user", carina_fuzz::vhost_user, MUTATIONS);
    accepts_what_is_good("vhost_user", carina_fuzz::reads_vhost_user);
}

#[test]
fn vnet_document_survives_its_corpus() {
    replay("vnet_document", carina_fuzz::vnet_document, MUTATIONS);
    accepts_what_is_good("vnet_document", carina_fuzz::reads_vnet_document);
}

#[test]
fn vnet_guest_survives_its_corpus() {
    replay("vnet_guest", carina_fuzz::vnet_guest, MUTATIONS);
    accepts_what_is_good("vnet_guest", carina_fuzz::reads_vnet_guest);
}

#[test]
fn vnet_saved_survives_its_corpus() {
    replay("vnet_saved", carina_fuzz::vnet_saved, MUTATIONS);
    accepts_what_is_good("vnet_saved", carina_fuzz::reads_vnet_saved);
}

#[test]
fn vnet_part_survives_its_corpus() {
    replay("vnet_part", carina_fuzz::vnet_part, 5 * MUTATIONS);
    accepts_what_is_good("vnet_part", carina_fuzz::reads_vnet_part);
}

#[test]
fn vnet_token_survives_its_corpus() {
    replay("vnet_token", carina_fuzz::vnet_token, MUTATIONS);
    // No mutation of a token is signed by the key in it.
    for file in corpus("vnet_token") {
        let bytes = fs::read(&file).expect("a file of the corpus");
        let is_good = file.to_string_lossy().contains("/good-");
        let reads = carina_fuzz::reads_vnet_token;
        assert_eq!(reads(&bytes), is_good, "{}", file.display());
        assert!(
            (0..MUTATIONS)
                .all(|seed| mutated(&bytes, seed) == bytes || !reads(&mutated(&bytes, seed)))
        );
    }
}

#[test]
fn vnet_access_survives_its_corpus() {
    replay("vnet_access", carina_fuzz::vnet_access, MUTATIONS);
    accepts_what_is_good("vnet_access", carina_fuzz::reads_vnet_access);
}

#[test]
fn ipfix_flows_survive_their_corpus() {
    replay("ipfix_flows", carina_fuzz::ipfix_flows, MUTATIONS);
    accepts_what_is_good("ipfix_flows", carina_fuzz::measures_flows);
}

#[test]
fn lwaftr_file_survives_its_corpus() {
    replay("lwaftr_file", carina_fuzz::lwaftr_file, MUTATIONS);
    accepts_what_is_good("lwaftr_file", carina_fuzz::reads_lwaftr_file);
}

#[test]
fn lwaftr_requests_survive_their_corpus() {
    replay("lwaftr_requests", carina_fuzz::lwaftr_requests, MUTATIONS);
    accepts_what_is_good("lwaftr_requests", carina_fuzz::changes_by_lwaftr_requests);
}

#[test]
fn lwaftr_frames_survive_their_corpus() {
    replay("lwaftr_frames", carina_fuzz::lwaftr_frames, MUTATIONS);
    accepts_what_is_good("lwaftr_frames", carina_fuzz::forwards_lwaftr_frames);
}

#[test]
fn vmpi_control_survives_its_corpus() {
    replay("vmpi_control", carina_fuzz::vmpi_control, 5 * MUTATIONS);
}

#[test]
fn vmpi_stream_survives_its_corpus() {
    replay("vmpi_stream", carina_fuzz::vmpi_stream, 5 * MUTATIONS);
}

#[test]
fn vsock_hybrid_survives_its_corpus() {
    replay("vsock_hybrid", carina_fuzz::vsock_hybrid, 5 * MUTATIONS);
}

#[test]
fn vsock_packets_survive_their_corpus() {
    replay("vsock_packets", carina_fuzz::vsock_packets, 5 * MUTATIONS);
}

#[test]
fn vmpi_block_survives_its_corpus() {
    replay("vmpi_block", carina_fuzz::vmpi_block, 5 * MUTATIONS);
}

#[test]
fn vmpi_endpoint_survives_its_corpus() {
    replay("vmpi_endpoint", carina_fuzz::vmpi_endpoint, MUTATIONS);
}

#[test]
fn xenstore_survives_its_corpus() {
    replay("xenstore", carina_fuzz::xenstore, MUTATIONS);
}

#[test]
fn ivshmem_server_survives_its_corpus() {
    replay(
        "ivshmem_server",
        carina_fuzz::ivshmem_server,
        MUTATIONS / 10,
    );
}

#[test]
fn ipc_message_survives_its_corpus() {
    replay("ipc_message", carina_fuzz::ipc_message, 20 * MUTATIONS);
    accepts_what_is_good("ipc_message", carina_fuzz::reads_ipc_message);
}

#[test]
fn socks5_survives_its_corpus() {
    replay("socks5", carina_fuzz::socks5, 5 * MUTATIONS);
    accepts_what_is_good("socks5", carina_fuzz::reads_socks5);
}

#[test]
fn ip_sdu_survives_its_corpus() {
    replay("ip_sdu", carina_fuzz::ip_sdu, 5 * MUTATIONS);
    accepts_what_is_good("ip_sdu", carina_fuzz::reads_ip_sdu);
}

#[test]
fn http_proxy_survives_its_corpus() {
    replay("http_proxy", carina_fuzz::http_proxy, 5 * MUTATIONS);
    accepts_what_is_good("http_proxy", carina_fuzz::reads_http_proxy);
}

#[test]
fn dns_query_survives_its_corpus() {
    replay("dns_query", carina_fuzz::dns_query, 5 * MUTATIONS);
    accepts_what_is_good("dns_query", carina_fuzz::reads_dns_query);
}

#[test]
fn configuration_survives_its_corpus() {
    replay("configuration", carina_fuzz::configuration, 5 * MUTATIONS);
    accepts_what_is_good("configuration", carina_fuzz::reads_configuration);
}

#[test]
fn graph_file_survives_its_corpus() {
    replay("graph_file", carina_fuzz::graph_file, MUTATIONS);
    accepts_what_is_good("graph_file", carina_fuzz::reads_graph_file);
}

#[test]
fn trace_request_survives_its_corpus() {
    replay("trace_request", carina_fuzz::trace_request, 5 * MUTATIONS);
    accepts_what_is_good("trace_request", carina_fuzz::reads_trace_request);
}

#[test]
fn nfv_ports_survives_its_corpus() {
    replay("nfv_ports", carina_fuzz::nfv_ports, 5 * MUTATIONS);
    accepts_what_is_good("nfv_ports", carina_fuzz::reads_nfv_ports);
}

#[test]
fn app_frames_survives_its_corpus() {
    replay("app_frames", carina_fuzz::app_frames, MUTATIONS);
    accepts_what_is_good("app_frames", carina_fuzz::reads_app_frames);
}

#[test]
fn lua_script_survives_its_corpus() {
    // Each is an interpreter, and those that do not return take their budget.
    replay("lua_script", carina_fuzz::lua_script, MUTATIONS / 10);
    for file in corpus("lua_script") {
        let bytes = fs::read(&file).expect("a file of the corpus");
        let runs = carina_fuzz::runs_lua_script(&bytes);
        assert_eq!(runs, !is_bad(&file), "{}", file.display());
    }
}

#[test]
fn filter_survives_its_corpus() {
    replay("filter", carina_fuzz::filter, MUTATIONS);
    accepts_what_is_good("filter", carina_fuzz::reads_filter);
}

#[test]
fn capture_frames_survives_its_corpus() {
    replay("capture_frames", carina_fuzz::capture_frames, 5 * MUTATIONS);
    accepts_what_is_good("capture_frames", carina_fuzz::reads_capture_frames);
}

#[test]
fn shim_frames_survives_its_corpus() {
    replay("shim_frames", carina_fuzz::shim_frames, 5 * MUTATIONS);
    accepts_what_is_good("shim_frames", carina_fuzz::reads_shim_frames);
}

/// Checks that every file is accepted, unless its name begins with `bad-`, and that mutations of
/// good ones are now and then: else they would test nothing behind the syntax.
fn accepts_what_is_good(target: &str, accepts: fn(&[u8]) -> bool) {
    let mut accepted = 0;
    for (number, file) in corpus(target).iter().enumerate() {
        let bytes = fs::read(file).expect("a file of the corpus");
        assert_eq!(accepts(&bytes), !is_bad(file), "{}", file.display());
        let seeds = (0..5 * MUTATIONS).map(|seed| seed + 1000 * number as u64);
        accepted += seeds
            .filter(|seed| accepts(&mutated(&bytes, *seed)))
            .count();
    }
    assert!(accepted > 100, "{accepted} mutations were accepted");
}

fn is_bad(file: &Path) -> bool {
    file.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("bad-"))
}

fn corpus(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.expect("an entry of the corpus").path())
        .collect();
    files.sort();
    assert!(
        files.len() >= 3,
        "{} holds {} files",
        dir.display(),
        files.len()
    );
    files
}

#[test]
fn pci_survives_its_corpus() {
    replay("pci", carina_fuzz::pci, 5 * MUTATIONS);
    accepts_what_is_good("pci", carina_fuzz::reads_pci);
}

#[test]
fn cdap_survives_its_corpus() {
    replay("cdap", carina_fuzz::cdap, 5 * MUTATIONS);
    accepts_what_is_good("cdap", carina_fuzz::reads_cdap);
}

#[test]
fn connect_reader_survives_its_corpus() {
    replay("connect_reader", carina_fuzz::connect_reader, 5 * MUTATIONS);
    accepts_what_is_good("connect_reader", carina_fuzz::reads_connect);
}

#[test]
fn arp_survives_its_corpus() {
    replay("arp", carina_fuzz::arp, 5 * MUTATIONS);
    accepts_what_is_good("arp", carina_fuzz::reads_arp);
}

#[test]
fn pcapng_survives_its_corpus() {
    replay("pcapng", carina_fuzz::pcapng, 5 * MUTATIONS);
    accepts_what_is_good("pcapng", carina_fuzz::reads_pcapng);
}

#[test]
fn frame_survives_its_corpus() {
    replay("frame", carina_fuzz::frame, 5 * MUTATIONS);
    accepts_what_is_good("frame", carina_fuzz::reads_frame);
}

#[test]
fn unprotect_survives_its_corpus() {
    replay("unprotect", carina_fuzz::unprotect, 5 * MUTATIONS);
    accepts_what_is_good("unprotect", carina_fuzz::reads_unprotect);
}

#[test]
fn auth_survives_its_corpus() {
    replay("auth", carina_fuzz::auth, MUTATIONS);
    accepts_what_is_good("auth", carina_fuzz::reads_auth);
}

#[test]
fn efcp_survives_its_corpus() {
    replay("efcp", carina_fuzz::efcp, 5 * MUTATIONS);
}

#[test]
fn ipcp_survives_its_corpus() {
    replay("ipcp", carina_fuzz::ipcp, MUTATIONS);
}

#[test]
fn enrollment_survives_its_corpus() {
    replay("enrollment", carina_fuzz::enrollment, 5 * MUTATIONS);
    accepts_what_is_good("enrollment", carina_fuzz::reads_enrollment);
}

#[test]
fn irati_survives_its_corpus() {
    replay("irati", carina_fuzz::irati, MUTATIONS);
    accepts_what_is_good("irati", carina_fuzz::reads_irati);
}

#[test]
fn rlite_survives_its_corpus() {
    replay("rlite", carina_fuzz::rlite, MUTATIONS);
    accepts_what_is_good("rlite", carina_fuzz::reads_rlite);
}

#[test]
fn link_state_survives_its_corpus() {
    replay("link_state", carina_fuzz::link_state, 5 * MUTATIONS);
    accepts_what_is_good("link_state", carina_fuzz::reads_link_state);
}

#[test]
fn capture_survives_its_corpus() {
    replay("capture", carina_fuzz::capture, MUTATIONS);
    accepts_what_is_good("capture", carina_fuzz::reads_capture);
}

#[test]
fn dissect_survives_its_corpus() {
    replay("dissect", carina_fuzz::dissect, 5 * MUTATIONS);
    accepts_what_is_good("dissect", carina_fuzz::reads_packets);
}

#[test]
fn import_irati_survives_its_corpus() {
    replay("import_irati", carina_fuzz::import_irati, MUTATIONS);
    accepts_what_is_good("import_irati", carina_fuzz::reads_irati_conf);
}

#[test]
fn import_vnet_survives_its_corpus() {
    replay("import_vnet", carina_fuzz::import_vnet, MUTATIONS);
    accepts_what_is_good("import_vnet", carina_fuzz::reads_networks);
}

#[test]
fn import_rlite_survives_its_corpus() {
    replay("import_rlite", carina_fuzz::import_rlite, MUTATIONS);
    accepts_what_is_good("import_rlite", carina_fuzz::reads_rlite_ctl);
}

#[test]
fn lab_survives_its_corpus() {
    replay("lab", carina_fuzz::lab, MUTATIONS);
    accepts_what_is_good("lab", carina_fuzz::reads_lab);
}

fn replay(target: &str, run: fn(&[u8]), mutations: u64) {
    let files = corpus(target);
    let read = |file: &PathBuf| fs::read(file).expect("a file of the corpus");
    let all: Vec<Vec<u8>> = files.iter().map(read).collect();
    for (number, bytes) in all.iter().enumerate() {
        run(bytes);
        for seed in 0..mutations {
            run(&mutated(bytes, seed + 1000 * number as u64));
        }
    }
    // For longer without the fuzzer: further seeds, and mutations of mutations.
    let seconds = std::env::var("CARINA_FUZZ_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 1_000_000;
    while Instant::now() < until {
        for bytes in &all {
            let mut changed = bytes.clone();
            for _ in 0..=seed % 4 {
                seed += 1;
                changed = mutated(&changed, seed);
            }
            let ran = std::panic::catch_unwind(|| run(&changed));
            assert!(ran.is_ok(), "seed {seed}: {:?}", Shown(&changed));
        }
    }
}

/// Bytes as a literal.
struct Shown<'a>(&'a [u8]);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// The bytes with a few of them changed, removed, doubled or cut off, as the seed says.
fn mutated(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut random = SplitMix::new(seed);
    let mut out = bytes.to_vec();
    for _ in 0..=random.index(4) {
        let at = random.index(out.len() + 1);
        match random.index(7) {
            0 if at < out.len() => out[at] ^= 1 << random.index(8),
            1 if at < out.len() => out[at] = random.next_u64() as u8,
            2 if at < out.len() => drop(out.remove(at)),
            3 => out.insert(at, random.next_u64() as u8),
            4 => out.insert(at, MARKS[random.index(MARKS.len())]),
            5 => out.extend_from_within(at..),
            _ => out.truncate(at),
        }
    }
    out
}

/// What means something in JSON or TOML.
const MARKS: &[u8] = b"\"{}[]:,\\0-\n=.|";
