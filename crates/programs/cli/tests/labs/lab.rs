//! A lab of a test, with a name and a directory of its own. Dropping it leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The program under test.
const CARINA: &str = env!("CARGO_BIN_EXE_carina");

/// Time limit for a very busy machine. It only ends a test that hangs; no result depends on it.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Lab {
    name: String,
    directory: tempfile::TempDir,
    maker: Option<Child>,
}

/// Runs `carina`.
pub(super) fn carina(words: &[&str]) -> Output {
    Command::new(CARINA).args(words).output().unwrap()
}

/// The whole output of a command.
pub(super) fn words(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// The example files.
pub(super) fn examples() -> Vec<String> {
    let directory = example("").parent().unwrap().to_owned();
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let labs = paths.filter(|path| path.extension().is_some_and(|e| e == "lab"));
    labs.map(|path| path.to_str().unwrap().to_owned()).collect()
}

fn example(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.join("examples/labs").join(format!("{name}.lab"))
}

/// Whether a test is skipped because a program is missing.
pub(super) fn skipped(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !is_there {
        println!("SKIP: the program {program}");
    }
    !is_there
}

impl Lab {
    fn new() -> Lab {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        Lab {
            name: format!("test{}-{number}", std::process::id()),
            directory: tempfile::Builder::new()
                .prefix("clab")
                .tempdir_in(base)
                .unwrap(),
            maker: None,
        }
    }

    fn labs(&self) -> &str {
        self.directory.path().to_str().unwrap()
    }

    fn up_command(&self, file: &Path) -> Command {
        let mut command = Command::new(CARINA);
        command
            .args([
                "lab",
                "up",
                "--name",
                &self.name,
                "--labs",
                self.labs(),
                "--wait",
                "600s",
            ])
            .arg(file);
        command
    }

    /// Makes the lab of an example; `None` if that is not permitted here.
    pub(super) fn up(name: &str) -> Option<Lab> {
        Lab::new().made(&example(name))
    }

    /// Makes the lab of a text; `None` if that is not permitted here.
    pub(super) fn up_text(text: &str) -> Option<Lab> {
        let lab = Lab::new();
        let file = lab.directory.path().join("file.lab");
        std::fs::write(&file, text).unwrap();
        lab.made(&file)
    }

    fn made(self, file: &Path) -> Option<Lab> {
        let output = self.up_command(file).output().unwrap();
        if is_forbidden(&output) {
            return None;
        }
        assert!(output.status.success(), "{}", words(&output));
        Some(self)
    }

    /// Makes the lab of a text, which must fail. Returns the output of the command.
    pub(super) fn fail(text: &str) -> Option<(Lab, Output)> {
        let lab = Lab::new();
        let file = lab.directory.path().join("file.lab");
        std::fs::write(&file, text).unwrap();
        let output = lab.up_command(&file).output().unwrap();
        assert!(!output.status.success(), "{}", words(&output));
        (!is_forbidden(&output)).then_some((lab, output))
    }

    /// Starts to make the lab of an example.
    pub(super) fn start(name: &str) -> Option<Lab> {
        // A first small lab shows whether making labs is permitted.
        drop(Lab::up_text("system only")?);
        let mut lab = Lab::new();
        let mut command = lab.up_command(&example(name));
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        lab.maker = Some(command.spawn().unwrap());
        Some(lab)
    }

    pub(super) fn kill_maker_once_there_is_a_node(&mut self) {
        let record = self.directory.path().join(&self.name).join("lab.json");
        let until = Instant::now() + PATIENCE;
        while !std::fs::read_to_string(&record).is_ok_and(|text| {
            text.contains("started_ticks\": ")
                && text
                    .split("\"nodes\"")
                    .nth(1)
                    .is_some_and(|nodes| nodes.contains("pid"))
        }) {
            assert!(Instant::now() < until, "no node after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut maker = self.maker.take().unwrap();
        maker.kill().unwrap();
        maker.wait().unwrap();
    }

    /// Sends SIGTERM to `up` while a QEMU of the lab runs. Requires that `up` ends as interrupted,
    /// and that no process of the lab is left.
    pub(super) fn terminate_maker_once_there_is_a_machine(&mut self) {
        let until = Instant::now() + PATIENCE;
        while !self
            .processes()
            .iter()
            .any(|line| line.contains("qemu-system"))
        {
            assert!(Instant::now() < until, "no machine after {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut maker = self.maker.take().unwrap();
        kill_process(Pid::from_child(&maker), Signal::TERM).unwrap();
        assert_eq!(maker.wait().unwrap().code(), Some(130));
        assert_eq!(self.processes(), Vec::<String>::new());
    }

    /// The command lines of all processes that name a file of this lab.
    fn processes(&self) -> Vec<String> {
        let place = self.directory.path().join(&self.name);
        let place = place.to_str().unwrap();
        let entries = std::fs::read_dir("/proc").unwrap();
        let lines = entries.filter_map(|entry| {
            let line = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&line).replace('\0', " "))
        });
        lines.filter(|line| line.contains(place)).collect()
    }

    /// Runs `up` again with the same name.
    pub(super) fn up_again(&self, name: &str) -> Output {
        self.up_command(&example(name)).output().unwrap()
    }

    /// Runs `carina lab VERB ...` on the labs of this test.
    pub(super) fn carina(&self, words: &[&str]) -> Output {
        let (verb, rest) = words.split_first().unwrap();
        let mut all = vec!["lab", verb, "--labs", self.labs()];
        all.extend(rest);
        carina(&all)
    }

    pub(super) fn exec(&self, system: &str, words: &[&str]) -> Output {
        let mut all = vec!["exec", "--lab", &self.name, system];
        all.extend(words);
        self.carina(&all)
    }

    /// Sends five pings, all of which must be answered.
    pub(super) fn ping(&self, system: &str, words: &[&str]) {
        let mut all = vec![
            "carina",
            "ping",
            "--json",
            "--count",
            "5",
            "--interval",
            "20ms",
            "--timeout",
            "60s",
            // The name may not be known to this system yet.
            "--wait",
            "600s",
        ];
        all.extend(words);
        let output = self.exec(system, &all);
        assert!(
            output.status.success(),
            "{system}: {}",
            self::words(&output)
        );
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["received"], 5, "{result}");
    }

    /// Waits until all members of all DIFs have an address, and adjacent members are neighbours.
    pub(super) fn all_enrolled(&self) {
        let until = Instant::now() + PATIENCE;
        while let Err(missing) = self.enrolled() {
            assert!(Instant::now() < until, "{missing}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn enrolled(&self) -> Result<(), Value> {
        let status = self.carina(&["status", "--json", &self.name]);
        assert!(status.status.success(), "{}", words(&status));
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        let mut members = 0;
        for system in status["systems"].as_array().unwrap() {
            for ipcp in system["ipcps"].as_array().unwrap() {
                if ipcp["type"] == "normal" {
                    let neighbours = ipcp["member"]["neighbours"].as_array().unwrap();
                    if neighbours.is_empty() || !ipcp["member"]["address"].is_u64() {
                        return Err(ipcp.clone());
                    }
                    members += 1;
                }
            }
        }
        assert!(members > 1, "{status}");
        Ok(())
    }

    /// Takes the lab down, and checks that nothing of it is left.
    pub(super) fn down_and_look(&self) {
        let output = self.carina(&["down", &self.name]);
        assert!(output.status.success(), "{}", words(&output));
        self.look();
    }

    /// Checks that nothing of the lab is left.
    pub(super) fn look(&self) {
        assert!(!self.directory.path().join(&self.name).exists());
        let names = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let names = words(&names);
        let own = [
            format!("carina-{}-", self.name),
            format!("carina-{}.", self.name),
        ];
        assert!(!own.iter().any(|own| names.contains(own)), "{names}");
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(maker) = &mut self.maker {
            let _ = maker.kill();
            let _ = maker.wait();
        }
        if std::thread::panicking() {
            // When a test fails, the logs of the nodes are useful.
            let logs = std::fs::read_dir(self.directory.path().join(&self.name));
            for log in logs.into_iter().flatten().flatten() {
                if log.path().extension().is_some_and(|e| e == "log") {
                    let text = std::fs::read_to_string(log.path()).unwrap_or_default();
                    eprintln!("--- {}\n{text}", log.path().display());
                }
            }
            self.carina(&["down", &self.name]);
        } else {
            self.down_and_look();
        }
    }
}

fn is_forbidden(output: &Output) -> bool {
    let printed = words(output);
    let is_forbidden = printed.contains("not allowed here");
    if is_forbidden {
        println!("SKIP: {printed}");
    }
    is_forbidden
}
