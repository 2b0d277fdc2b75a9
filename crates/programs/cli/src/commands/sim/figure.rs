//! Draws the figure of `carina sim scale`: a pair of bars for each metric.

use std::io;
use std::path::Path;

use carina_sim::scale::Layout;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Serialize;

use crate::failure::{Failure, failed};

/// One measured value, with its spread over the runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub case: &'static str,
    /// Always 0: the metrics have no SDU size. The field makes the rows readable by the same
    /// programs as those of other benchmarks.
    pub sdu: u64,
    pub system: &'static str,
    pub metric: &'static str,
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub runs: usize,
}

/// The two arrangements, by their names.
pub(super) const SYSTEMS: [(&str, Layout); 2] =
    [("flat", Layout::Flat), ("recursive", Layout::Recursive)];

/// Draws the medians of both arrangements as bars on a logarithmic scale. A thin line on each bar
/// goes from the lowest to the highest value.
///
/// # Errors
/// The file cannot be written.
pub(super) fn draw(rows: &[Row], systems: usize, path: &Path) -> Result<(), Failure> {
    let area = SVGBackend::new(path, (960, 560)).into_drawing_area();
    draw_on(&area, rows, systems)
        .and_then(|()| area.present())
        .map_err(|reason| failed(format!("drawing {}: {reason}", path.display())))
}

/// The metrics of the figure: case, metric, and the label under its bars.
const SHOWN: [(&str, &str, &str); 7] = [
    ("join", "convergence_s", "convergence, s"),
    ("join", "messages", "messages to join"),
    ("join", "bytes", "bytes to join"),
    ("hold", "rib_objects_per_system", "RIB objects a system"),
    ("hold", "forwarding_entries_per_system", "routes a system"),
    ("rest", "messages_per_minute", "messages a minute, idle"),
    ("one cable cut", "messages", "messages after a cut"),
];

const COLOURS: [RGBColor; 2] = [RGBColor(213, 94, 0), RGBColor(0, 114, 178)];

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    rows: &[Row],
    systems: usize,
) -> Result<(), DrawingAreaErrorKind<io::Error>> {
    let top = rows.iter().map(|row| row.high).fold(10.0, f64::max);
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(
            format!("{systems} systems in one DIF and in small DIFs"),
            ("sans-serif", 20),
        )
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..SHOWN.len() as f64, (0.5..top * 2.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .disable_x_mesh()
        .x_labels(0)
        .y_desc("median, logarithmic")
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (index, (system, _)) in SYSTEMS.iter().enumerate() {
        let colour = COLOURS[index];
        let left = 0.15 + 0.35 * index as f64;
        let found = |(case, metric, _): &(&str, &str, &str)| {
            let is_it =
                |row: &&Row| row.system == *system && row.case == *case && row.metric == *metric;
            rows.iter().find(is_it)
        };
        let shown: Vec<(f64, &Row)> = SHOWN
            .iter()
            .enumerate()
            .filter_map(|(at, what)| Some((at as f64 + left, found(what)?)))
            .collect();
        let bar = |(x, row): &(f64, &Row)| {
            let corners = [(*x, 0.5), (x + 0.33, row.median.max(0.5))];
            Rectangle::new(corners, colour.filled())
        };
        chart
            .draw_series(shown.iter().map(bar))?
            .label(*system)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        let spread = |(x, row): &(f64, &Row)| {
            let at = x + 0.165;
            PathElement::new([(at, row.low.max(0.5)), (at, row.high.max(0.5))], BLACK)
        };
        chart.draw_series(shown.iter().map(spread))?;
    }
    let (width, height) = area.dim_in_pixel();
    let step = (f64::from(width) - 72.0 - 24.0) / SHOWN.len() as f64;
    for (at, (_, _, words)) in SHOWN.iter().enumerate() {
        let x = 84.0 + step * at as f64 + 4.0;
        let place = (x as i32, height as i32 - 34);
        let style = ("sans-serif", 11).into_text_style(area);
        area.draw_text(words, &style, place)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK)
        .draw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_shows_both_arrangements() {
        let row = |system, median| Row {
            case: "join",
            sdu: 0,
            system,
            metric: "messages",
            median,
            low: median / 2.0,
            high: median * 2.0,
            runs: 3,
        };
        let rows = [row("flat", 1e6), row("recursive", 1e4)];
        let path = std::env::temp_dir().join(format!("carina-scale-{}.svg", std::process::id()));
        draw(&rows, 1_000, &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(svg.contains("recursive") && svg.contains("messages to join"));
    }
}
