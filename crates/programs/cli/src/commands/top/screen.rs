//! A full-screen table of live rates, redrawn after each interval, with keys that scroll it.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use carina_sys::StopSignal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table as Grid};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::live::{Column, Live};
use crate::failure::{Attempt, Outcome, failed};

/// A terminal with fewer columns than this is narrow.
const WIDE: u16 = 110;

/// The state of the screen.
struct Screen<'a, L: Live> {
    live: &'a L,
    rows: Vec<L::Row>,
    interval: Duration,
    /// Index of the row at the top of the screen.
    first: usize,
    /// Number of rows that had room when the screen was last drawn.
    room: usize,
}

/// What the user requests with a key.
#[derive(Debug, PartialEq)]
enum Wish {
    End,
    /// Scroll down by this number of rows, or up when negative.
    Scroll(isize),
    Nothing,
}

/// An event that the screen waits for, besides the end of its interval.
enum Input {
    /// A key, a new size of the terminal, or an error in reading from the terminal.
    Terminal(io::Result<Event>),
    /// SIGINT, SIGTERM or SIGHUP from another process or the system: the program must end. Ctrl-C
    /// is a key here.
    Stop,
}

/// Shows live rates until the user presses `q`, Escape or Ctrl-C (a key in raw mode), or a signal
/// ends the program. Then restores the terminal.
///
/// # Errors
/// Standard output is not a terminal, or the counters can no longer be read.
pub(crate) fn run<L: Live>(interval: Duration, live: &L) -> Outcome {
    let before = (Instant::now(), live.sample()?);
    if !std::io::stdout().is_terminal() {
        return Err(failed(
            "standard output is not a terminal; --once prints one table, --json a line per \
             interval",
        ));
    }
    let screen = Screen {
        live,
        // Rates need two samples. Until the second one, the rows show names and totals only.
        rows: live.rates(&before.1, &before.1, 1.0),
        interval,
        first: 0,
        room: 0,
    };
    let stop = StopSignal::or_hangup().attempt("waiting for signals")?;
    let mut terminal = ratatui::try_init().attempt("taking over the terminal")?;
    let outcome = screen.run(&mut terminal, before, &inputs(stop));
    // Restoring fails when the terminal has hung up; then it does not matter.
    let _ = ratatui::try_restore();
    outcome
}

/// Starts two threads that end with the program, one that waits for keys and one for signals. Each
/// keeps its descriptor to itself.
fn inputs(stop: StopSignal) -> Receiver<Input> {
    let (sender, inputs) = channel();
    let of_signals = sender.clone();
    std::thread::spawn(move || wait_for_signal(&stop, &of_signals));
    std::thread::spawn(move || {
        loop {
            let event = event::read();
            let is_last = event.is_err();
            if sender.send(Input::Terminal(event)).is_err() || is_last {
                return;
            }
        }
    });
    inputs
}

fn wait_for_signal(stop: &StopSignal, sender: &Sender<Input>) {
    let mut wanted = [PollFd::new(stop, PollFlags::IN)];
    while poll(&mut wanted, None) == Err(Errno::INTR) {}
    // The receiver is closed when the screen has already ended.
    let _ = sender.send(Input::Stop);
}

impl<L: Live> Screen<'_, L> {
    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        mut before: (Instant, L::Sample),
        inputs: &Receiver<Input>,
    ) -> Outcome {
        loop {
            terminal.draw(|frame| self.draw(frame)).attempt("drawing")?;
            let left = self.interval.saturating_sub(before.0.elapsed());
            match inputs.recv_timeout(left) {
                Ok(Input::Stop) => return Ok(()),
                Ok(Input::Terminal(event)) => {
                    // A change of size needs no action here: the loop redraws for the new size.
                    if let Event::Key(key) = event.attempt("reading a key")? {
                        match wish(key, self.room) {
                            Wish::End => return Ok(()),
                            Wish::Scroll(rows) => {
                                self.first = self.first.saturating_add_signed(rows);
                            }
                            Wish::Nothing => {}
                        }
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed("the thread that reads keys and signals has ended"));
                }
            }
            let after = (Instant::now(), self.live.sample()?);
            let seconds = (after.0 - before.0).as_secs_f64();
            self.rows = self.live.rates(&before.1, &after.1, seconds);
            before = after;
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [table, foot] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        self.room = usize::from(table.height.saturating_sub(1));
        self.first = self.first.min(self.rows.len().saturating_sub(self.room));
        let is_narrow = table.width < WIDE;
        let is_shown = |column: &Column| !is_narrow || !column.is_dispensable;
        let columns = || L::COLUMNS.iter().filter(|column| is_shown(column));
        let widths = columns().map(|column| match column.width {
            0 => Constraint::Fill(1),
            width => Constraint::Length(width),
        });
        let style = |row: &L::Row| {
            if L::is_marked(row) {
                Style::new().yellow()
            } else {
                Style::new()
            }
        };
        let shown = self.rows.iter().skip(self.first).take(self.room);
        let rows = shown.map(|row| {
            let cells = L::COLUMNS.iter().zip(L::cells(row));
            let cells = cells.filter(|(column, _)| is_shown(column));
            Row::new(cells.map(|(_, cell)| Cell::from(cell))).style(style(row))
        });
        let head = columns().map(|column| column.head);
        let grid = Grid::new(rows, widths)
            .header(Row::new(head).style(Style::new().bold().reversed()))
            .column_spacing(1);
        frame.render_widget(grid, table);
        frame.render_widget(Line::raw(self.foot()).reversed(), foot);
    }

    fn foot(&self) -> String {
        let (all, last) = (self.rows.len(), self.rows.len().min(self.first + self.room));
        let seconds = self.interval.as_secs_f64();
        let first = (self.first + 1).min(last);
        format!("rows {first} to {last} of {all}, rates over {seconds} s; arrows scroll, q ends")
    }
}

fn wish(key: KeyEvent, room: usize) -> Wish {
    let page = isize::try_from(room.max(1)).unwrap_or(isize::MAX);
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::End,
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        KeyCode::Down | KeyCode::Char('j') => Wish::Scroll(1),
        KeyCode::Up | KeyCode::Char('k') => Wish::Scroll(-1),
        KeyCode::PageDown | KeyCode::Char(' ') => Wish::Scroll(page),
        KeyCode::PageUp => Wish::Scroll(-page),
        KeyCode::Home => Wish::Scroll(isize::MIN),
        KeyCode::End => Wish::Scroll(isize::MAX),
        _ => Wish::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_keys_that_are_named_end_it() {
        let of = |code, modifiers| wish(KeyEvent::new(code, modifiers), 10);
        let plain = |code| of(code, KeyModifiers::NONE);
        let ends = [KeyCode::Char('q'), KeyCode::Esc].map(plain);
        assert_eq!(ends, [Wish::End, Wish::End]);
        assert_eq!(plain(KeyCode::Char('c')), Wish::Nothing);
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Wish::End);
        assert_eq!(plain(KeyCode::PageUp), Wish::Scroll(-10));
    }
}
