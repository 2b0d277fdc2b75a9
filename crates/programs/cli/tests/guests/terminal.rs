//! Tests of a program on a real terminal, and of what a person would see there.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::house::{CARINA, Host, SOON, until};

/// Larger than any size that a test sets.
const ROWS: usize = 60;
const COLUMNS: usize = 200;

/// The screen as a person sees it.
pub(crate) struct Grid {
    cells: Vec<[u8; COLUMNS]>,
    row: usize,
    column: usize,
    /// Whether the second screen is shown, which full-screen programs use.
    pub is_alternate: bool,
    pub is_cursor_shown: bool,
    /// An incomplete escape sequence.
    sequence: Vec<u8>,
    /// Escape sequences that this grid does not know, which could be garbage on a user's terminal.
    pub unknown: Vec<String>,
}

impl Grid {
    fn new() -> Grid {
        Grid {
            cells: vec![[b' '; COLUMNS]; ROWS],
            row: 0,
            column: 0,
            is_alternate: false,
            is_cursor_shown: true,
            sequence: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// A row without the spaces at its end.
    pub(crate) fn row(&self, row: usize) -> String {
        let text = String::from_utf8_lossy(&self.cells[row]);
        text.trim_end().to_owned()
    }

    /// The first row that contains all these words.
    pub(crate) fn row_with(&self, words: &[&str]) -> Option<String> {
        let mut rows = (0..ROWS).map(|row| self.row(row));
        rows.find(|row| words.iter().all(|word| row.contains(word)))
    }

    pub(crate) fn text(&self) -> String {
        let rows: Vec<String> = (0..ROWS).map(|row| self.row(row)).collect();
        rows.join("\n").trim_end().to_owned()
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match (self.sequence.is_empty(), byte) {
                (true, 0x1b) => self.sequence.push(0x1b),
                (true, b'\r') => self.column = 0,
                (true, b'\n') => self.row = (self.row + 1).min(ROWS - 1),
                (true, 0x08) => self.column = self.column.saturating_sub(1),
                (true, 0..0x20) => self.unknown.push(format!("{byte:#x}")),
                (true, byte) => {
                    self.cells[self.row][self.column] = *byte;
                    self.column = (self.column + 1).min(COLUMNS - 1);
                }
                (false, byte) => {
                    self.sequence.push(*byte);
                    let is_final = self.sequence.len() > 2 && (0x40..0x7f).contains(byte);
                    if is_final || (self.sequence.len() == 2 && *byte != b'[') {
                        let sequence = std::mem::take(&mut self.sequence);
                        self.obey(&String::from_utf8_lossy(&sequence));
                    }
                }
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let body = sequence.strip_prefix("\x1b[").unwrap_or_default();
        let place = |text: &str| text.parse::<usize>().map_or(0, |number| number - 1);
        match body {
            "?1049h" | "?1049l" => {
                self.is_alternate = body.ends_with('h');
                self.cells = vec![[b' '; COLUMNS]; ROWS];
                (self.row, self.column) = (0, 0);
            }
            "?25h" | "?25l" => self.is_cursor_shown = body.ends_with('h'),
            "2J" => self.cells = vec![[b' '; COLUMNS]; ROWS],
            "J" | "0J" => {
                self.cells[self.row][self.column..].fill(b' ');
                self.cells[self.row + 1..].fill([b' '; COLUMNS]);
            }
            "K" | "0K" => self.cells[self.row][self.column..].fill(b' '),
            _ if body.ends_with('m') => {}
            _ if body.ends_with('H') => {
                let (row, column) = body
                    .trim_end_matches('H')
                    .split_once(';')
                    .unwrap_or(("", ""));
                self.row = place(row).min(ROWS - 1);
                self.column = place(column).min(COLUMNS - 1);
            }
            _ => self.unknown.push(sequence.escape_debug().to_string()),
        }
    }
}

/// A shell command line on a terminal of its own. Dropping the value kills it.
pub(crate) struct Terminal {
    child: Child,
    keys: ChildStdin,
    grid: Arc<Mutex<Grid>>,
    device: PathBuf,
}

impl Terminal {
    /// Runs `commands` in a shell, in which `$carina` is the program under test.
    pub(crate) fn run(host: &Host, rows: u32, columns: u32, commands: &str) -> Terminal {
        let device = host.run_dir().join("terminal");
        let line = format!(
            "stty rows {rows} cols {columns}; tty >{}; {commands}",
            device.display()
        );
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "script", "-qec", &line, "/dev/null"])
            .env("CARINA_RUN", host.run_dir())
            .env("carina", CARINA)
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let grid = Arc::new(Mutex::new(Grid::new()));
        let drawn = Arc::clone(&grid);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                drawn.lock().unwrap().write(&buffer[..length]);
            }
        });
        let (device, grid) = (
            until(SOON, || {
                std::fs::read_to_string(&device)
                    .ok()
                    .filter(|text| !text.is_empty())
            })
            .map(|text| PathBuf::from(text.trim()))
            .expect("a terminal"),
            grid,
        );
        Terminal {
            child,
            keys,
            grid,
            device,
        }
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Changes the size, as when a user drags the corner of the window.
    pub(crate) fn resize(&self, rows: u32, columns: u32) {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        let stty = Command::new("stty")
            .arg("-F")
            .arg(&self.device)
            .args(["rows", &rows, "cols", &columns])
            .status();
        assert!(stty.unwrap().success());
    }

    /// Waits until the screen is as wanted.
    pub(crate) fn shows<T>(&self, what: &str, wanted: impl Fn(&Grid) -> Option<T>) -> T {
        until(SOON, || wanted(&self.grid.lock().unwrap())).unwrap_or_else(|| {
            let grid = self.grid.lock().unwrap();
            panic!(
                "not on the screen: {what}; there is:\n{}\n{:?}",
                grid.text(),
                grid.unknown
            )
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_shows_channels_scrolls_and_leaves_a_clean_terminal() {
    let host = Host::start();
    let guest = host.boot("a");
    guest.serves_echo(&host, "echo");
    let _client = host.in_background(&["ping", "echo", "-c", "0", "-i", "5ms", "-q"]);
    let commands = "\"$carina\" top -i 200ms; echo status $?; stty -a";
    let mut terminal = Terminal::run(&host, 24, 140, commands);

    let head = terminal.shows("the head", |grid| grid.row_with(&["KIND", "NAME"]));
    assert!(
        head.contains(" CH ") && head.contains("DOORBELLS/s"),
        "{head}"
    );
    terminal.shows("the engine", |grid| {
        grid.row_with(&["engine", "data-plane"])
    });
    terminal.shows("the IPCP of the VM", |grid| {
        grid.row_with(&["ipcp", "hv a"])
    });
    // The first channel that a host opens is 2. Its SDUs are counted in both directions.
    let moves = |grid: &Grid| {
        let row = grid.row_with(&["flow", "> echo via ipcp"])?;
        let cells: Vec<String> = row.split_whitespace().map(str::to_owned).collect();
        let rates = cells.len().checked_sub(6).map(|from| &cells[from..])?;
        let is_moving = [0, 2].iter().all(|at| rates[*at] != "0");
        let channel = cells.get(cells.len() - 7)?;
        (is_moving && channel == "2").then_some(())
    };
    terminal.shows("the flow on channel 2 with rates", moves);
    let rows = terminal.shows("the foot", |grid| {
        let foot = grid.row(23);
        let (_, rest) = foot.strip_prefix("rows 1 to ")?.split_once(" of ")?;
        rest.split(',').next()?.parse::<usize>().ok()
    });
    assert!(rows >= 3, "engine, IPCP and flow are three rows of {rows}");

    keys_move_through_a_small_window(&mut terminal, rows);
    q_leaves_the_terminal_as_it_was(&mut terminal);
}

/// Checks that a small window shows fewer columns, and that keys scroll the rows.
fn keys_move_through_a_small_window(terminal: &mut Terminal, rows: usize) {
    terminal.resize(4, 80);
    let head = terminal.shows("the head of a narrow table", |grid| {
        let head = grid.row_with(&["KIND", "NAME"])?;
        (!head.contains("DOORBELLS/s")).then_some(head)
    });
    assert!(head.len() <= 80, "{head}");
    terminal.shows("two rows", |grid| {
        grid.row(3).starts_with("rows 1 to 2 of").then_some(())
    });
    terminal.shows("nothing below", |grid| grid.row(4).is_empty().then_some(()));
    terminal.types("c\x1b[B");
    terminal.shows("the next row", |grid| {
        grid.row(3).starts_with("rows 2 to 3 of").then_some(())
    });
    terminal.types("\x1b[F");
    let last = format!("rows {} to {rows} of {rows}", rows - 1);
    terminal.shows("the last row", |grid| {
        grid.row(3).starts_with(&last).then_some(())
    });
    terminal.types("\x1b[H");
    terminal.shows("the first row", |grid| {
        grid.row(3).starts_with("rows 1 to 2 of").then_some(())
    });
    terminal.resize(24, 140);
    terminal.shows("all columns again", |grid| {
        grid.row_with(&["KIND", "DOORBELLS/s"])
    });
}

fn q_leaves_the_terminal_as_it_was(terminal: &mut Terminal) {
    let end = |grid: &Grid| {
        let text = grid.text();
        (text.contains("status 0") && text.contains("echoke")).then_some(text)
    };
    terminal.types("q");
    // A key typed in the moment in which the window changes its size is read with the next key.
    if until(A_WHILE, || end(&terminal.grid.lock().unwrap())).is_none() {
        terminal.types("q");
    }
    let settings = terminal.shows("the end", end);
    let words: Vec<&str> = settings.split([' ', ';', '\n']).collect();
    for set in ["icanon", "isig", "echo", "opost"] {
        assert!(words.contains(&set), "{set} is off:\n{settings}");
    }
    let grid = terminal.grid.lock().unwrap();
    assert!(!grid.is_alternate && grid.is_cursor_shown);
    assert!(grid.row(0).starts_with("status 0"), "{settings}");
    assert!(grid.unknown.is_empty(), "{:?}", grid.unknown);
}

/// Time in which `top` has read a key and ended.
const A_WHILE: Duration = Duration::from_secs(20);

#[test]
fn top_without_a_terminal_says_what_to_do_instead() {
    let host = Host::start();
    let output = host.carina(&["top"]);
    assert_eq!(output.status.code(), Some(1));
    let told = crate::house::told(&output);
    assert!(told.contains("--once") && told.contains("--json"), "{told}");
}
