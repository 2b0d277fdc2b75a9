//! Draws figures as SVG: lines of points with confidence bars. The figure of goodput has a line for
//! each system and direction.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::results::{Metric, Results, Row};
use crate::summary::regression;

/// Draws goodput over SDU size, for sizes up to `sdu_max` bytes, as an SVG file.
///
/// Points are means of the runs, bars are 95 % confidence intervals of the means, and the thin line
/// is the least-squares line through the points.
///
/// # Errors
/// The results have no goodput rows, or the file cannot be written.
pub fn draw(results: &Results, sdu_max: u64, title: &str, path: &Path) -> Result<(), FigureError> {
    let wanted = |row: &&Row| row.metric == Metric::GoodputMbps && row.sdu <= sdu_max;
    let mut lines: BTreeMap<(&str, &str), Vec<Point>> = BTreeMap::new();
    for row in results.rows.iter().filter(wanted) {
        let points = lines.entry((&row.system, &row.case)).or_default();
        points.push(Point {
            x: row.sdu as f64,
            y: row.mean,
            spread: row.ci95,
        });
    }
    let lines: Vec<Line> = lines
        .into_iter()
        .map(|((system, case), points)| Line {
            label: format!("{system}, {case}"),
            points,
        })
        .collect();
    let axes = Axes {
        title,
        x: "SDU size, bytes",
        y: "goodput, Mbit/s",
        x_max: sdu_max as f64,
        has_regression: true,
    };
    draw_lines(&lines, &axes, path)
}

/// A measured point on a line of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Position on the vertical axis.
    pub y: f64,
    /// Half the height of the confidence bar.
    pub spread: f64,
}

/// A line of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub label: String,
    /// Points of the line.
    pub points: Vec<Point>,
}

/// Title and axes of a figure.
#[derive(Debug, Clone, Copy)]
pub struct Axes<'a> {
    /// Title of the figure.
    pub title: &'a str,
    /// Label of the horizontal axis, with the unit.
    pub x: &'a str,
    /// Label of the vertical axis, with the unit.
    pub y: &'a str,
    /// Largest value on the horizontal axis.
    pub x_max: f64,
    /// Whether to draw the least-squares line through the points of each line.
    pub has_regression: bool,
}

/// Draws lines as an SVG file.
///
/// # Errors
/// No point is higher than 0, or the file cannot be written.
pub fn draw_lines(lines: &[Line], axes: &Axes<'_>, path: &Path) -> Result<(), FigureError> {
    let points = lines.iter().flat_map(|line| &line.points);
    let top = points.map(|p| p.y + p.spread).fold(0.0, f64::max);
    if top <= 0.0 {
        return Err(FigureError::Nothing);
    }
    let area = SVGBackend::new(path, (960, 600)).into_drawing_area();
    draw_on(&area, lines, axes, top)
        .and_then(|()| area.present())
        .map_err(|source| FigureError::Draw {
            path: path.to_owned(),
            source,
        })
}

/// Why a figure was not drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// No point of the figure is higher than 0.
    #[error("nothing was measured, so there is nothing to draw")]
    Nothing,
    /// The file could not be written.
    #[error("drawing {}: {source}", path.display())]
    Draw {
        /// Path of the figure's file that could not be written.
        path: PathBuf,
        /// Error of the drawing library.
        source: DrawError,
    },
}

/// Error of the drawing library.
type DrawError = DrawingAreaErrorKind<std::io::Error>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_on(area: &Area<'_>, lines: &[Line], axes: &Axes<'_>, top: f64) -> Result<(), DrawError> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(axes.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..axes.x_max * 1.02, 0.0..top * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(axes.x)
        .y_desc(axes.y)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        draw_line(&mut chart, line, index, axes.has_regression)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK)
        .draw()
}

/// Colours that colour-blind readers can tell apart (Okabe and Ito, 2008).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(0, 0, 0),
];

fn draw_line(
    chart: &mut Chart<'_, '_>,
    line: &Line,
    index: usize,
    has_regression: bool,
) -> Result<(), DrawError> {
    let colour = COLOURS[index % COLOURS.len()];
    let mut points: Vec<(f64, f64)> = line.points.iter().map(|p| (p.x, p.y)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    chart
        .draw_series(LineSeries::new(
            points.iter().copied(),
            colour.stroke_width(2),
        ))?
        .label(&line.label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
    let bar = |p: &Point| {
        let ends = [(p.x, (p.y - p.spread).max(0.0)), (p.x, p.y + p.spread)];
        PathElement::new(ends, colour.stroke_width(1))
    };
    chart.draw_series(line.points.iter().map(bar))?;
    if has_regression
        && let Some((slope, intercept)) = regression(&points)
        && let (Some(first), Some(last)) = (points.first(), points.last())
    {
        let at = |x: f64| (x, (slope * x + intercept).max(0.0));
        let line = [at(first.0), at(last.0)];
        chart.draw_series([PathElement::new(line, colour.mix(0.45).stroke_width(1))])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Samples;

    #[test]
    fn figure_names_every_line_and_is_svg() {
        let mut samples = Samples::default();
        for (sdu, value) in [
            (0, 0.0),
            (250, 10.0),
            (500, 21.0),
            (500, 19.0),
            (1_048_576, 900.0),
        ] {
            samples.add("guest-to-host", sdu, "carina", Metric::GoodputMbps, value);
            samples.add(
                "guest-to-host",
                sdu,
                "e1000",
                Metric::GoodputMbps,
                value / 9.0,
            );
        }
        let results = Results {
            bench: "hv".into(),
            machine: String::new(),
            notes: vec![],
            failures: Vec::new(),
            rows: samples.rows(),
            factors: samples.factors(),
        };
        let path = std::env::temp_dir().join(format!("carina-figure-{}.svg", std::process::id()));
        draw(&results, 4000, "goodput", &path).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(svg.contains("<svg") && svg.contains("carina, guest-to-host"));
        assert!(svg.contains("e1000, guest-to-host"));
    }

    #[test]
    fn nothing_measured_is_a_failure_not_an_empty_picture() {
        let results = Results {
            bench: "hv".into(),
            machine: String::new(),
            notes: vec![],
            failures: Vec::new(),
            rows: vec![],
            factors: vec![],
        };
        assert!(draw(&results, 4000, "t", Path::new("/nonexistent/x.svg")).is_err());
    }
}
