//! Tests of `carina vm run --ssh` and `carina ssh`: a guest without a network card, the sshd of
//! Debian in it, and ssh, scp and rsync on the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use carina_namespaces::run_within;

use crate::house::{BOOT, CARINA, Host, told};

/// Runs a program with this host's `carina` in its path.
fn program(host: &Host, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let path = std::env::var("PATH").unwrap();
    let own = std::path::Path::new(CARINA).parent().unwrap();
    command.env("PATH", format!("{}:{path}", own.display()));
    command.env("CARINA_RUN", host.run_dir());
    // The user's own files of ssh decide nothing.
    command.env("HOME", host.run_dir());
    run_within(&mut command, words[0], BOOT).unwrap()
}

/// Runs a program that reaches guest `a`, and must end as `is_right` says. Where the node of the
/// guest or of the host gets no processor time for 600 ms, the other node ends all flows between
/// them; the program then runs again.
fn reaches(host: &Host, words: &[&str], is_right: impl Fn(&Output) -> bool) -> Output {
    let losses = || host.log().matches("region lost").count();
    for _ in 0..ATTEMPTS_MAX {
        let before = losses();
        host.until_reachable("ssh.a");
        let output = program(host, words);
        if is_right(&output) {
            return output;
        }
        let is_busy = losses() > before;
        assert!(
            is_busy,
            "{words:?}: {:?} {}\n{}",
            output.status,
            told(&output),
            host.log()
        );
        println!("a node got no processor time, and its flows ended: {words:?} runs again");
    }
    panic!("{words:?}: this machine is too busy for a guest");
}

fn succeeds(host: &Host, words: &[&str]) -> String {
    let output = reaches(host, words, |output| output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_guest_without_a_card_is_reached_by_ssh_and_scp() {
    let host = Host::start();
    let unknown = program(&host, &[CARINA, "ssh", "a"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", told(&unknown));
    assert!(
        told(&unknown).contains("VM a does not run here"),
        "{}",
        told(&unknown)
    );

    let mut options = vec!["--ssh", "--program", "/usr/bin/scp"];
    let has_rsync = std::path::Path::new(RSYNC).exists();
    if has_rsync {
        options.extend(["--program", RSYNC]);
    }
    let vm = host.vm_run("a", &options);
    let key = host.run_dir().join("vm/a.ssh.key");
    let mode = fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // No question is asked, and the exit code is that of the command.
    let printed = succeeds(&host, &[CARINA, "ssh", "a", "id -u; hostname"]);
    assert_eq!(printed, "0\na\n");
    let ends_so = |output: &Output| output.status.code() == Some(42);
    reaches(&host, &[CARINA, "ssh", "a", "exit 42"], ends_so);
    let links = succeeds(
        &host,
        &[CARINA, "ssh", "-q", "root@a", "ls", "/sys/class/net"],
    );
    assert_eq!(links, "lo\n", "the guest has no network card");

    // scp and others by a file of settings.
    let config = host.run_dir().join("ssh_config");
    fs::write(&config, succeeds(&host, &[CARINA, "ssh", "--config", "a"])).unwrap();
    let (config, file) = (config.to_str().unwrap(), host.run_dir().join("file"));
    let content: Vec<u8> = (0..3_000_000_u64).map(|n| ((n * n) >> 7) as u8).collect();
    fs::write(&file, &content).unwrap();
    let (file, back) = (file.to_str().unwrap(), host.run_dir().join("back"));
    succeeds(&host, &["scp", "-q", "-F", config, file, "a:/tmp/file"]);
    succeeds(
        &host,
        &[
            "scp",
            "-q",
            "-F",
            config,
            "a:/tmp/file",
            back.to_str().unwrap(),
        ],
    );
    assert!(fs::read(back).unwrap() == content);

    copies_by_programs_in_the_guest(&host, config, file, has_rsync, &content);

    // A guest with another host key is not taken for this one.
    let known = host.run_dir().join("vm/a.ssh.known_hosts");
    let right = fs::read_to_string(&known).unwrap();
    let public = Command::new("ssh-keygen")
        .args(["-y", "-f"])
        .arg(&key)
        .output()
        .unwrap();
    fs::write(
        &known,
        format!("carina.a {}", String::from_utf8_lossy(&public.stdout)),
    )
    .unwrap();
    let is_refused = |output: &Output| {
        output.status.code() == Some(255)
            && told(output).contains("HOST IDENTIFICATION HAS CHANGED")
    };
    reaches(&host, &[CARINA, "ssh", "a", "true"], is_refused);
    fs::write(&known, right).unwrap();

    vm.stop();
    let left = fs::read_dir(host.run_dir().join("vm")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Copies by programs that run in the guest as well.
fn copies_by_programs_in_the_guest(
    host: &Host,
    config: &str,
    file: &str,
    has_rsync: bool,
    content: &[u8],
) {
    // The older protocol of scp runs scp in the guest; so does rsync by `-e`.
    let old = ["scp", "-O", "-q", "-F", config, file, "a:/tmp/old"];
    succeeds(host, &old);
    let length = succeeds(host, &["sh", "-c", "carina ssh a wc -c /tmp/old"]);
    assert_eq!(length.trim(), "3000000 /tmp/old");
    if has_rsync {
        copies_by_rsync(host, content);
    } else {
        println!("SKIP of rsync: there is no {RSYNC} here");
    }
}

/// Copies a directory into the guest and back, as the documentation has it.
fn copies_by_rsync(host: &Host, content: &[u8]) {
    let site = host.run_dir().join("site");
    fs::create_dir_all(site.join("below")).unwrap();
    fs::write(site.join("below/file"), content).unwrap();
    let source = format!("{}/", site.display());
    let rsync = ["rsync", "-a", "-e", "carina ssh"];
    succeeds(host, &[&rsync[..], &[&source, "a:site"]].concat());
    let length = succeeds(host, &[CARINA, "ssh", "a", "wc -c site/below/file"]);
    assert_eq!(length.trim(), "3000000 site/below/file");
    let back = host.run_dir().join("site.back");
    succeeds(
        host,
        &[&rsync[..], &["a:site/", back.to_str().unwrap()]].concat(),
    );
    assert!(fs::read(back.join("below/file")).unwrap() == content);
}

const RSYNC: &str = "/usr/bin/rsync";

/// Most times that a program runs because the guest got no processor time.
const ATTEMPTS_MAX: usize = 20;

/// The disk does not boot: the test reads the volume that cloud-init would find.
#[test]
fn guest_from_a_disk_gets_keys_and_a_node_by_a_volume() {
    let host = Host::start();
    let disk = host.run_dir().join("disk.raw");
    fs::write(&disk, [0; 512]).unwrap();
    let run = [
        "vm",
        "run",
        "d",
        "--ssh",
        "--no-wait",
        "--internet",
        "www.example.com",
    ];
    let started = host.carina(&[&run[..], &["--disk", disk.to_str().unwrap()]].concat());
    if told(&started).contains("genisoimage is not installed") {
        return println!("SKIP: there is no genisoimage here");
    }
    assert!(started.status.success(), "{}", told(&started));
    let seed = host.run_dir().join("vm/d.seed");
    let volume = fs::read(&seed).unwrap();
    assert_eq!(&volume[0x8001..0x8006], b"CD001");
    let has = |text: &str| {
        volume
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    for text in [
        "#cloud-config\n",
        "BEGIN OPENSSH PRIVATE KEY",
        "[[expose]]",
        "http_proxy=http://127.0.0.1:3128",
        "local-hostname: d\n",
    ] {
        assert!(has(text), "{text}");
    }
    let mode = fs::metadata(&seed).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the volume has keys");
    let stopped = host.carina(&["vm", "stop", "d"]);
    assert!(stopped.status.success(), "{}", told(&stopped));
    assert!(!seed.exists() && disk.exists());
}

#[test]
fn refused_ssh_names_the_way_out() {
    let host = Host::start();
    let program = host.carina(&["vm", "run", "b", "--program", "/no/such/program"]);
    assert_eq!(program.status.code(), Some(1));
    assert!(
        told(&program).contains("--program /no/such/program"),
        "{}",
        told(&program)
    );

    let vm = host.vm_run("b", &[]);
    let no_keys = host.carina(&["ssh", "b"]);
    assert_eq!(no_keys.status.code(), Some(3));
    assert!(
        told(&no_keys).contains("`carina vm run b --ssh`"),
        "{}",
        told(&no_keys)
    );
    let words = host.carina(&["ssh", "-p", "22"]);
    assert_eq!(words.status.code(), Some(2));
    assert!(
        told(&words).contains("needs the name of a VM"),
        "{}",
        told(&words)
    );
    vm.stop();
}
