//! `carina graph`: a graph runs, follows its file, and is drawn with its rates.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::commands::node::CARINA;

const CHAIN: &str = "links = [\"source.output -> hop.input\", \"hop.output -> sink.input\"]\n\
                     [apps.source]\nkind = \"source\"\nrate = 10000\n\
                     [apps.hop]\nkind = \"hop\"\n[apps.sink]\nkind = \"sink\"\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        fs::write(place.file(), text).unwrap();
        place
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.path().join("chain.toml")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(CARINA);
        command.arg("--run").arg(self.0.path().join("run"));
        command.args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn graph_runs_and_prints_what_went_over_its_links() {
    let place = Place::new(CHAIN);
    let file = place.file();
    let begin = Instant::now();
    let output = place.run(&[
        "--json",
        "graph",
        "run",
        file.to_str().unwrap(),
        "--for",
        "300ms",
    ]);
    // 10000 packets a second: ten a millisecond, and the first burst.
    let most = 10 * begin.elapsed().as_millis() as u64 + 200;
    let steps = text(&output.stderr);
    assert!(output.status.success(), "{steps}");
    assert!(
        steps.starts_with("+ app hop\n+ app sink\n+ app source\n+ link "),
        "{steps}"
    );
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let links = json["links"].as_array().unwrap();
    let packets = |at: usize| links[at]["packets"].as_u64().unwrap();
    assert_eq!(links[0]["link"], "hop.output -> sink.input");
    assert!(packets(0) > 0 && packets(0) <= most, "{json}");
    assert_eq!(
        (packets(0), &links[0]["drops"]),
        (packets(1), &serde_json::json!(0))
    );
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives a file a new text at once: one that is half written would be read so.
fn replace(file: impl AsRef<Path>, text: &str) {
    let new = file.as_ref().with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn running_graph_follows_its_file_and_is_drawn_with_rates() {
    let place = Place::new(CHAIN);
    let file = place.file();
    let file = file.to_str().unwrap();
    let log = place.0.path().join("log");
    let mut command = place.command(&["graph", "run", file, "--for", "120s"]);
    command
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let _running = Running(command.spawn().unwrap());
    let printed = || fs::read_to_string(&log).unwrap();
    until("the graph", || printed().contains("+ link"));
    let draw = || text(&place.run(&["graph", "draw", file]).stdout);
    until("a rate", || draw().contains("Mpps"));
    let picture = draw();
    assert!(
        picture.starts_with("<svg") && picture.contains(">hop</text>"),
        "{picture}"
    );
    // A wrong file changes nothing and says why; a right one is applied by difference.
    replace(file, &CHAIN.replace("\"hop\"", "\"hope\""));
    until("a refusal", || {
        printed().contains("kind = \"hope\": must be one of")
    });
    replace(file, &CHAIN.replace("rate = 10000", "rate = 2000"));
    until("the change", || printed().contains("~ app source\n"));
    assert!(!printed().contains("~ app hop"), "{}", printed());
}

#[test]
fn graph_runs_on_two_workers_and_shows_them() {
    let two = CHAIN.replace("[apps.hop]", "[apps.hop]\nworker = 1");
    let place = Place::new(&two);
    let file = place.file();
    let words = [
        "--json",
        "graph",
        "run",
        file.to_str().unwrap(),
        "--for",
        "500ms",
    ];
    let output = place.run(&words);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let workers = json["workers"].as_array().unwrap();
    assert_eq!(workers[0]["apps"], serde_json::json!(["source"]));
    // The sink is where the frames come from.
    assert_eq!(workers[1]["apps"], serde_json::json!(["hop", "sink"]));
    assert!(json["links"][0]["packets"].as_u64() > Some(0), "{json}");
    let output = place.run(&["graph", "run", file.to_str().unwrap(), "--cpu", "0,1023"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr).contains("worker 1: processor 1023: "),
        "{}",
        text(&output.stderr)
    );
    let output = place.run(&["graph", "run", file.to_str().unwrap(), "--cpu", "0"]);
    assert!(text(&output.stderr).contains("processors [0] for 2 workers"));
}

#[test]
fn wrong_graphs_and_figures_have_their_exit_codes() {
    let place = Place::new("links = [\"a.x -> b.y\"]\n");
    let file = place.file();
    let file = file.to_str().unwrap();
    let output = place.run(&["graph", "check", file]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("link a.x -> b.y: there is no app a"));
    fs::write(file, CHAIN).unwrap();
    let output = place.run(&["graph", "check", file]);
    assert_eq!(text(&output.stdout), "3 apps, 2 links\n");
    let output = place.run(&["graph", "run", file, "--frames", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("pool of 0 frames"));
    let output = place.run(&["graph", "run", "/nonexistent/graph.toml"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn script_is_loaded_again_and_named_when_it_stops() {
    let graph = "links = [\"source.output -> lua.input\", \"lua.output -> sink.input\"]\n\
                 [apps.source]\nkind = \"source\"\nrate = 10000\n\
                 [apps.lua]\nkind = \"lua\"\nfile = \"app.lua\"\nbudget_ms = 5\n\
                 [apps.sink]\nkind = \"sink\"\n";
    let script = |body: &str| {
        format!(
            "local seen = counter.create('seen')\nlocal App = {{}}\nfunction App:push()\n\
             local i, o = self.input.input, self.output.output\n\
             while not link.empty(i) do\n{body}\n\
             counter.add(seen)\nlink.transmit(o, link.receive(i))\nend\nend\nreturn App\n"
        )
    };
    let place = Place::new(graph);
    let (file, log) = (place.file(), place.0.path().join("log"));
    let lua = place.0.path().join("app.lua");
    fs::write(&lua, script("")).unwrap();
    let mut command = place.command(&["--json", "graph", "run", file.to_str().unwrap()]);
    command
        .stdout(Stdio::piped())
        .stderr(fs::File::create(&log).unwrap());
    let mut running = Running(command.spawn().unwrap());
    let printed = || fs::read_to_string(&log).unwrap();
    let top = || {
        text(
            &place
                .run(&["--json", "top", "--once", "--interval", "50ms"])
                .stdout,
        )
    };
    until("a counter", || top().contains("\"seen\":"));
    // One that is wrong changes nothing.
    replace(&lua, "local x = = 5\n");
    until("a refusal", || {
        printed().contains("app.lua:1: unexpected symbol near '='")
    });
    replace(&lua, &script("print('one')\nwhile true do end -- here"));
    until("a stop", || {
        printed().contains(
            "app lua has stopped: app.lua:7: the call does not return: it has used 5 \
             ms of CPU time (budget_ms)",
        )
    });
    assert!(printed().contains("~ app lua (replaced)\n") && printed().contains("app lua: one\n"));
    until("its mark", || top().contains("\"stopped\":1"));
    let mut interrupt = Command::new("kill");
    interrupt.args(["-INT", &running.0.id().to_string()]);
    assert!(interrupt.status().unwrap().success());
    let mut json = String::new();
    let stdout = running.0.stdout.as_mut().unwrap();
    std::io::Read::read_to_string(stdout, &mut json).unwrap();
    // The failure that the exit code stands for is an object behind it.
    let lines: Vec<_> = json.lines().collect();
    assert_eq!(lines.len(), 2, "{json}");
    let json: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    let reason = json["stopped"]["lua"].as_str().unwrap();
    assert!(reason.starts_with("app.lua:7: "), "{json}");
    assert_eq!(running.0.wait().unwrap().code(), Some(1));
}

#[test]
fn example_graphs_are_right() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let directories = ["graphs", "lua"].map(|name| fs::read_dir(examples.join(name)).unwrap());
    for entry in directories.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let place = Place::new("");
        let output = place.run(&["graph", "check", path.to_str().unwrap()]);
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            text(&output.stderr)
        );
    }
}

#[test]
fn traced_link_is_a_file_that_tshark_reads() {
    let place = Place::new(CHAIN);
    let file = place.file();
    let mut command = place.command(&["graph", "run", file.to_str().unwrap(), "--for", "300s"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let written = place.0.path().join("hop.pcapng");
    let written = written.to_str().unwrap();
    let trace = |words: &[&str]| place.run(&[&["trace"], words].concat());
    until("the graph", || trace(&["--count", "1"]).status.success());
    let output = trace(&["hop.output", "--write", written, "--count", "500"]);
    let printed = text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(
        printed.starts_with("500 frames of chain.toml, "),
        "{printed}"
    );
    let mut tshark = Command::new("tshark");
    tshark.args(["-r", written, "-T", "fields"]);
    let fields = ["frame.interface_name", "eth.src", "ip.ttl", "udp.length"];
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    match tshark.output() {
        Err(error) => println!("SKIP: tshark (Debian package tshark): {error}"),
        Ok(read) => {
            let lines = text(&read.stdout);
            assert_eq!(lines.lines().count(), 500, "{}", text(&read.stderr));
            // The hop has swapped the addresses of the source, and counted itself.
            let first = lines.lines().next().unwrap();
            let want = "hop.output -> sink.input\t02:00:00:00:00:02\t63\t";
            assert!(first.starts_with(want), "{first}");
        }
    }
    // On the screen, both links, for a time; and what there is not.
    let output = trace(&["--for", "200ms", "--snap", "20"]);
    let lines = text(&output.stdout);
    assert!(lines.contains("source.output -> hop.input"), "{lines}");
    assert!(lines.contains("hop.output -> sink.input"), "{lines}");
    assert!(text(&output.stderr).ends_with(" missed\n"));
    let output = trace(&["hope.output"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        text(&output.stderr)
            .contains("the graph has no link hope.output; its links are hop.output")
    );
    let output = trace(&["--graph", "other.toml"]);
    assert!(text(&output.stderr).contains("no graph other.toml runs; running graphs: chain.toml"));
    // One that was killed is not taken for one that runs.
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let output = trace(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("no graph that this user may trace runs"),
        "{}",
        text(&output.stderr)
    );
}
