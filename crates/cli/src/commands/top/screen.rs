//! The screen of `carina top`: a table that is drawn anew after each interval, keys that scroll it.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use carina_netdev::StopSignal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Row, Table as Grid};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::{HEAD, Rates, Sample, rates};
use crate::failure::{Attempt, Failure, Outcome, failed};

/// Width of each column of [`HEAD`]; 0 takes what is left.
const WIDTHS: [u16; 10] = [6, 10, 0, 5, 9, 9, 9, 10, 11, 8];

// A head that is wider than its column would be cut.
const _: () = {
    let mut column = 0;
    while column < WIDTHS.len() {
        assert!(WIDTHS[column] == 0 || WIDTHS[column] as usize >= HEAD[column].len());
        column += 1;
    }
};

/// A terminal of fewer columns shows only these of the table's, so that names have room.
const WIDE: u16 = 110;
const NARROW: [usize; 7] = [0, 2, 4, 5, 6, 7, 9];

/// What is shown.
struct Screen {
    rows: Vec<Rates>,
    interval: Duration,
    /// The row at the top.
    first: usize,
    /// Rows that had room when last drawn.
    room: usize,
}

/// What a key asks for.
#[derive(Debug, PartialEq)]
enum Wish {
    End,
    /// Rows down, or up when negative.
    Scroll(isize),
    Nothing,
}

/// What the screen waits for besides its interval.
enum Input {
    /// A key, or another size; the terminal's refusal.
    Terminal(io::Result<Event>),
    /// A signal that ends the program.
    Stop,
}

/// Draws until `q`, Escape, Ctrl-C, which arrives as a key in raw mode, or a signal that asks it to
/// end; the terminal is then as it was.
///
/// # Errors
/// Standard output is no terminal, or the counters are gone.
pub(super) fn run(interval: Duration, look: &dyn Fn() -> Result<Sample, Failure>) -> Outcome {
    let before = (Instant::now(), look()?);
    if !std::io::stdout().is_terminal() {
        return Err(failed(
            "standard output is no terminal; --once prints one table, --json a line per interval",
        ));
    }
    let screen = Screen {
        // Rates need two samples; until the second, only names and drops are shown.
        rows: rates(&before.1, &before.1, 1.0),
        interval,
        first: 0,
        room: 0,
    };
    let stop = StopSignal::or_hangup().attempt("waiting for signals")?;
    let mut terminal = ratatui::try_init().attempt("taking over the terminal")?;
    let outcome = screen.run(&mut terminal, before, look, &inputs(stop));
    // A terminal that has hung up cannot be restored, and need not be.
    let _ = ratatui::try_restore();
    outcome
}

/// Two threads wait, one for keys and one for signals: what reads keys keeps its descriptor to
/// itself. They end with the program.
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
    // The receiver is gone when the screen has ended already.
    let _ = sender.send(Input::Stop);
}

impl Screen {
    fn run(
        mut self,
        terminal: &mut DefaultTerminal,
        mut before: (Instant, Sample),
        look: &dyn Fn() -> Result<Sample, Failure>,
        inputs: &Receiver<Input>,
    ) -> Outcome {
        loop {
            terminal.draw(|frame| self.draw(frame)).attempt("drawing")?;
            let left = self.interval.saturating_sub(before.0.elapsed());
            match inputs.recv_timeout(left) {
                Ok(Input::Stop) => return Ok(()),
                Ok(Input::Terminal(event)) => {
                    // A resize is an event without a wish: the loop draws for the new size.
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
                    return Err(failed("nothing reads keys and signals any more"));
                }
            }
            let after = (Instant::now(), look()?);
            self.rows = rates(&before.1, &after.1, (after.0 - before.0).as_secs_f64());
            before = after;
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [table, foot] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        self.room = usize::from(table.height.saturating_sub(1));
        self.first = self.first.min(self.rows.len().saturating_sub(self.room));
        let columns: &[usize] = match table.width {
            0..WIDE => &NARROW,
            _ => &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        };
        let widths = columns.iter().map(|column| match WIDTHS[*column] {
            0 => Constraint::Fill(1),
            width => Constraint::Length(width),
        });
        let style = |row: &Rates| match row.drops {
            0 => Style::new(),
            _ => Style::new().yellow(),
        };
        let shown = self.rows.iter().skip(self.first).take(self.room);
        let rows = shown.map(|row| {
            let cells = row.cells();
            let cells = columns
                .iter()
                .map(|column| Cell::from(cells[*column].clone()));
            Row::new(cells).style(style(row))
        });
        let head = columns.iter().map(|column| HEAD[*column]);
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
