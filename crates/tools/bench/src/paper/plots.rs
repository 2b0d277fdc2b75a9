//! Figures of the cases that do not measure goodput over SDU size.

use std::path::Path;

use carina_measure::figure::COLOURS;
use carina_measure::results::Row;
use carina_measure::summary::regression;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::error::{Error, Result};

type DrawError = DrawingAreaErrorKind<std::io::Error>;

/// Title and axis labels of a figure.
pub(super) struct Labels<'a> {
    /// Title above the figure.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis, with the unit.
    pub y: &'a str,
}

/// A value, with the range of its runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    /// The median of the runs.
    pub median: f64,
    /// The lowest value of the runs.
    pub low: f64,
    /// The highest value of the runs.
    pub high: f64,
}

impl Spread {
    /// The median and range of a row.
    pub(super) fn of(row: &Row) -> Spread {
        Spread {
            median: row.median,
            low: row.low,
            high: row.high,
        }
    }
}

/// A bar of a figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    /// Label below the bar.
    pub label: String,
    /// Name of the bar's group; bars of a group have the same colour.
    pub group: String,
    /// Height of the bar: median, lowest and highest value of the runs.
    pub spread: Spread,
}

/// A point of a figure, with its name beside it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Point {
    /// Name of the point.
    pub name: String,
    /// Position on the horizontal axis.
    pub x: f64,
    /// Height of the point: median, lowest and highest value of the runs.
    pub spread: Spread,
}

/// Draws bars side by side, each with the range of its runs.
///
/// # Errors
/// No bar is higher than 0, or the file cannot be written.
pub(super) fn bars(bars: &[Bar], labels: &Labels<'_>, path: &Path) -> Result<()> {
    let top = highest(bars.iter().map(|bar| bar.spread), labels)?;
    draw_bars(bars, top, labels, path).map_err(|reason| plot_error(path, &reason))
}

/// Draws points with their names, and the least-squares line through them.
///
/// # Errors
/// No point is higher than 0, or the file cannot be written.
pub(super) fn points(points: &[Point], labels: &Labels<'_>, path: &Path) -> Result<()> {
    let top = highest(points.iter().map(|point| point.spread), labels)?;
    draw_points(points, top, labels, path).map_err(|reason| plot_error(path, &reason))
}

fn plot_error(path: &Path, reason: &DrawError) -> Error {
    Error::Plot {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn highest(spreads: impl Iterator<Item = Spread>, labels: &Labels<'_>) -> Result<f64> {
    let top = spreads.map(|spread| spread.high).fold(0.0, f64::max);
    if top > 0.0 && top.is_finite() {
        Ok(top)
    } else {
        Err(Error::NothingToDraw(labels.title.to_owned()))
    }
}

fn draw_bars(
    bars: &[Bar],
    top: f64,
    labels: &Labels<'_>,
    path: &Path,
) -> std::result::Result<(), DrawError> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, FONT)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(
            (0..bars.len().saturating_sub(1)).into_segmented(),
            0.0..top * 1.15,
        )?;
    let label = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(at) => bars.get(*at).map_or_else(String::new, |b| b.label.clone()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_labels(bars.len() + 1)
        .x_label_formatter(&label)
        .draw()?;
    let mut groups: Vec<&str> = bars.iter().map(|bar| bar.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    for (index, group) in groups.into_iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let of_group = || (0..bars.len()).filter(|at| bars[*at].group == group);
        let boxes = of_group().map(|at| {
            let ends = [
                (SegmentValue::Exact(at), 0.0),
                (SegmentValue::Exact(at + 1), bars[at].spread.median),
            ];
            let mut bar = Rectangle::new(ends, colour.mix(0.75).filled());
            bar.set_margin(0, 0, 10, 10);
            bar
        });
        chart
            .draw_series(boxes)?
            .label(group)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        let ranges = of_group().map(|at| {
            let Spread { low, high, .. } = bars[at].spread;
            let at = SegmentValue::CenterOf(at);
            PathElement::new([(at.clone(), low), (at, high)], BLACK.stroke_width(1))
        });
        chart.draw_series(ranges)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK)
        .draw()?;
    area.present()
}

fn draw_points(
    points: &[Point],
    top: f64,
    labels: &Labels<'_>,
    path: &Path,
) -> std::result::Result<(), DrawError> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let right = points.iter().map(|point| point.x).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, FONT)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..right.max(1.0) * 1.08, 0.0..top * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_labels(right as usize + 1)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .draw()?;
    let (dots, line) = (COLOURS[0], COLOURS[2]);
    let plane: Vec<(f64, f64)> = points.iter().map(|p| (p.x, p.spread.median)).collect();
    if let Some((slope, intercept)) = regression(&plane) {
        let at = |x: f64| (x, intercept + slope * x);
        chart.draw_series(LineSeries::new([at(0.0), at(right)], line.stroke_width(2)))?;
    }
    let range = |point: &Point| {
        let Spread { low, high, .. } = point.spread;
        PathElement::new([(point.x, low), (point.x, high)], dots.stroke_width(1))
    };
    chart.draw_series(points.iter().map(range))?;
    for point in points {
        let place = (point.x, point.spread.median);
        let mark = EmptyElement::at(place)
            + Circle::new((0, 0), 4, dots.filled())
            + Text::new(point.name.clone(), (8, -6), ("sans-serif", 14));
        chart.draw_series([mark])?;
    }
    area.present()
}

/// Width and height of a figure in pixels.
const SIZE: (u32, u32) = (960, 600);
const FONT: (&str, i32) = ("sans-serif", 20);
