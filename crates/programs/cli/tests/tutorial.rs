//! Follows pages of `docs/` line by line: runs all commands of a page in one shell, and searches
//! their output for the output that the page shows.
//!
//! The shell has its own network, `/run` and process ids. It affects nothing on the machine, and
//! nothing of it remains, however it ends.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// Time limit for a very busy machine. It only ends a test that hangs; no result depends on it.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Text in a shown line that matches any text.
const ANYTHING: &str = "...";

/// Text in front of the number of a step, in the output.
const STEP: &str = "@@ line ";

/// A block of commands of the page, and the output that the page shows after it.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// Line of the page on which the block begins.
    line: usize,
    shown: Vec<String>,
}

#[test]
fn the_tutorial_is_as_it_says() {
    is_as_it_says("docs/tutorials/tutorial.md", 10);
}

#[test]
fn tutorial_of_virtual_networks_is_as_it_says() {
    is_as_it_says("docs/tutorials/vnet.md", 9);
}

#[test]
fn tutorial_of_two_machines_is_as_it_says() {
    is_as_it_says("docs/tutorials/machines.md", 6);
}

#[test]
fn page_of_operating_virtual_networks_is_as_it_says() {
    is_as_it_says("docs/how-to/vnet-operate.md", 3);
}

#[test]
fn page_of_users_of_virtual_networks_is_as_it_says() {
    // `carina vnet join` makes a tun interface.
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    if let Err(error) = device {
        return println!("SKIP: /dev/net/tun cannot be opened: {error}");
    }
    is_as_it_says("docs/how-to/vnet-users.md", 0);
}

#[test]
fn page_of_networks_of_dif_links_is_as_it_says() {
    is_as_it_says("docs/how-to/vnet-dif.md", 0);
}

#[test]
fn page_for_users_of_other_tools_is_as_it_says() {
    is_as_it_says("docs/how-to/vnet-coming-from.md", 6);
}

/// Follows a page that must have more than `least` steps.
fn is_as_it_says(page: &str, least: usize) {
    let page = std::fs::read_to_string(root().join(page)).unwrap();
    let (script, steps) = read(&page);
    assert!(steps.len() > least, "{steps:?}");
    if let Err(why) = permitted() {
        println!("SKIP: no namespaces here: {why}");
        return;
    }
    // A longer limit for a very busy machine; no result depends on it.
    let patient = script.replace("--wait 30s", "--wait 10m");
    let output = follow(&patient);
    let mut printed = output.split(STEP).skip(1);
    for step in &steps {
        let Some(printed) = printed.next() else {
            panic!("the step at line {} was not reached:\n{output}", step.line);
        };
        let (line, printed) = printed.split_once('\n').unwrap();
        assert_eq!(line, step.line.to_string());
        if let Some(missing) = missing(&step.shown, printed) {
            panic!("line {line} shows `{missing}`; what was said there:\n{printed}");
        }
    }
    assert!(output.ends_with(&format!("{STEP}end\n")), "{output}");
}

/// The root of the repository.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::canonicalize(root).unwrap()
}

/// The commands of a page, each on its own line number, and the steps.
fn read(page: &str) -> (String, Vec<Step>) {
    let mut script = String::new();
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = None;
    for (index, line) in page.lines().enumerate() {
        let line_number = index + 1;
        match (inside, line.strip_prefix("```")) {
            (None, Some("sh")) => {
                inside = Some("sh");
                steps.push(Step {
                    line: line_number,
                    shown: Vec::new(),
                });
                script += &format!("printf '\\n{STEP}{line_number}\\n'");
            }
            (None, Some(other)) => inside = Some(if other == "text" { "text" } else { "other" }),
            (Some(_), Some(_)) => inside = None,
            (Some("sh"), None) => script += line,
            (Some("text"), None) => {
                let step = steps
                    .last_mut()
                    .expect("commands come before what they say");
                step.shown.push(line.to_owned());
            }
            (_, None) => {}
        }
        script.push('\n');
    }
    (script + &format!("printf '\\n{STEP}end\\n'\n"), steps)
}

/// The first shown line that is missing in the output, in the order shown.
fn missing<'a>(shown: &'a [String], printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    let mut lines = shown.iter().map(String::as_str).filter(|line| {
        let line = line.trim();
        !line.is_empty() && line != ANYTHING
    });
    lines.find(|line| !printed.any(|printed| fits(line, printed)))
}

/// Whether a line of output matches a shown line. White space counts as one space, and `...`
/// matches anything.
fn fits(shown: &str, printed: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, printed) = (plain(shown), plain(printed));
    let mut parts = shown.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// A command in namespaces of its own. It ends with this test.
fn apart(command: &str) -> Command {
    let mut all = Command::new("setpriv");
    all.args(["--pdeathsig", "KILL", "unshare"]);
    if !rustix::process::geteuid().is_root() {
        all.arg("--map-root-user");
    }
    all.args(["--net", "--mount", "--pid", "--fork", "--kill-child"]);
    all.args(["--mount-proc", "bash", "-c"]);
    let prepare = "mount -t tmpfs tmpfs /run && ip link set lo up";
    all.arg(format!("{prepare} && {command}"));
    all.stdin(Stdio::null());
    all
}

/// Checks that namespaces can be made here.
fn permitted() -> Result<(), String> {
    let attempt = "ip netns add attempt && ip netns exec attempt true && ip netns del attempt";
    let output = apart(attempt).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Runs the commands, and returns their whole output. Panics when one fails.
fn follow(script: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let (page, printed) = (directory.path().join("page"), directory.path().join("said"));
    std::fs::write(&page, script).unwrap();
    // Pages name the examples by their paths from the root.
    let examples = root().join("examples");
    std::os::unix::fs::symlink(examples, directory.path().join("examples")).unwrap();
    let mut path = Path::new(CARINA).parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = File::create(&printed).unwrap();
    let mut shell = apart("exec bash -e \"$PAGE\"")
        .env("PAGE", &page)
        .env("PATH", path)
        .env_remove("CARINA_RUN")
        .current_dir(directory.path())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = shell.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > until {
            shell.kill().unwrap();
            shell.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let printed = std::fs::read(&printed).unwrap();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    match status {
        Some(status) if status.success() => printed,
        Some(status) => panic!("the step failed ({status}) that is the last here:\n{printed}"),
        None => panic!("the step hangs that is the last here:\n{printed}"),
    }
}

#[test]
fn commands_stay_on_their_lines() {
    let page = "a\n```sh\nb\nc\n```\n\n```text\nd\n```\n```toml\ne\n```\n";
    let (script, steps) = read(page);
    let lines: Vec<&str> = script.lines().collect();
    assert_eq!(lines[..5], ["", "printf '\\n@@ line 2\\n'", "b", "c", ""]);
    assert!(!script.contains("\nd\n") && !script.contains("\ne\n"));
    assert_eq!(steps.len(), 1);
    assert_eq!(
        (steps[0].line, &steps[0].shown[..]),
        (2, &["d".to_owned()][..])
    );
}

#[test]
fn dots_stand_for_anything_and_nothing_else_does() {
    assert!(fits("a  b", "a b") && fits("a ... c", "a b c") && fits("a=...", "a=1"));
    assert!(fits("... b ... d", "a b c d") && !fits("... b ... d", "a c b"));
    assert!(!fits("a", "a b") && !fits("b", "a b") && !fits("a ... a", "a"));
    let shown: Vec<String> = ["b", "...", "d"].map(str::to_owned).to_vec();
    assert_eq!(missing(&shown, "a\nb\nc\nd"), None);
    assert_eq!(missing(&shown, "d\nb"), Some("d"));
}
