//! The goodput figure: a line with confidence bars for each system and direction.

use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::results::{Metric, Results, Row};
use crate::summary::regression;

/// Draws goodput over SDU size for sizes up to `sdu_max` bytes as an SVG file.
///
/// Points are means of the runs, bars their 95 % confidence intervals, the thin line is the
/// least-squares line through the points.
///
/// # Errors
/// Results without goodput rows, or a file that cannot be written.
pub fn draw(results: &Results, sdu_max: u64, title: &str, path: &Path) -> Result<(), FigureError> {
    let wanted = |row: &&Row| row.metric == Metric::GoodputMbps && row.sdu <= sdu_max;
    let rows: Vec<&Row> = results.rows.iter().filter(wanted).collect();
    let top = rows.iter().map(|r| r.mean + r.ci95).fold(0.0, f64::max);
    if rows.is_empty() || top <= 0.0 {
        return Err(FigureError::NoGoodput);
    }
    let area = SVGBackend::new(path, (960, 600)).into_drawing_area();
    draw_on(&area, &rows, (sdu_max as f64, top), title)
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
    /// The results hold no goodput at the sizes of the figure.
    #[error("no goodput was measured, so there is nothing to draw")]
    NoGoodput,
    /// The file could not be written.
    #[error("drawing {}: {source}", path.display())]
    Draw {
        /// The file.
        path: PathBuf,
        /// What the drawing library said.
        source: DrawError,
    },
}

/// An error of the drawing library.
type DrawError = DrawingAreaErrorKind<std::io::Error>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

fn draw_on(
    area: &Area<'_>,
    rows: &[&Row],
    limit: (f64, f64),
    title: &str,
) -> Result<(), DrawError> {
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..limit.0 * 1.02, 0.0..limit.1 * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("SDU size, bytes")
        .y_desc("goodput, Mbit/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    let mut lines: Vec<(&str, &str)> = rows
        .iter()
        .map(|r| (r.system.as_str(), r.case.as_str()))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    for (index, (system, case)) in lines.into_iter().enumerate() {
        let points: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|r| r.system == system && r.case == case)
            .collect();
        draw_line(&mut chart, &points, index, &format!("{system}, {case}"))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK)
        .draw()
}

/// Colours that remain apart for colour-blind readers (Okabe and Ito, 2008).
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
    rows: &[&Row],
    index: usize,
    label: &str,
) -> Result<(), DrawError> {
    let colour = COLOURS[index % COLOURS.len()];
    let mut points: Vec<(f64, f64)> = rows.iter().map(|r| (r.sdu as f64, r.mean)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    chart
        .draw_series(LineSeries::new(
            points.iter().copied(),
            colour.stroke_width(2),
        ))?
        .label(label)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    chart.draw_series(points.iter().map(|p| Circle::new(*p, 3, colour.filled())))?;
    let bar = |row: &&Row| {
        let x = row.sdu as f64;
        let ends = [
            (x, (row.mean - row.ci95).max(0.0)),
            (x, row.mean + row.ci95),
        ];
        PathElement::new(ends, colour.stroke_width(1))
    };
    chart.draw_series(rows.iter().map(bar))?;
    if let (Some((slope, intercept)), Some(first), Some(last)) =
        (regression(&points), points.first(), points.last())
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
