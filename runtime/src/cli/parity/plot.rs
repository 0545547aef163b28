//! The two pictures of the report, as SVG: error by stage, and the heat map of the first stage that diverged.
//!
//! Colours are names for the page's style sheet, which knows light and dark: `INK` reads `#000001` in the SVG and is given its
//! colour there. What a picture shows beyond axes and marks (cells, tips, links) the page lays over it, at the places told here.

use std::{fmt::Display, ops::Range};

use base64::Engine as _;
use plotters::{
    prelude::*,
    style::FontTransform,
    style::text_anchor::{HPos, Pos, VPos},
};
use serde::Serialize;

use crate::{
    error::{Context, Result, anyhow},
    parity::Map,
};

const INK: RGBColor = RGBColor(0, 0, 1);
const FAINT: RGBColor = RGBColor(0, 0, 2);
const BOUND: RGBColor = RGBColor(0, 0, 3);
const BAD: RGBColor = RGBColor(0, 0, 4);
/// Of the first executor and of the second.
const EXECUTORS: [RGBColor; 2] = [RGBColor(0, 0, 5), RGBColor(0, 0, 6)];

/// Stages whose names all stand below the plot; of more, every second, third..
const NAMED: usize = 60;
/// Letters of a name there.
const LONGEST: usize = 40;

/// One row of the table, as the plot shows it.
pub(super) struct Mark {
    pub executor: usize,
    pub stage: String,
    /// `None` where there was nothing to subtract.
    pub error: Option<f64>,
    /// What the worst element may differ by.
    pub bound: Option<f64>,
    pub diverged: bool,
}

/// A picture, and where its marks stand.
#[derive(Serialize)]
pub(super) struct Plot {
    svg: String,
    size: (u32, u32),
    /// One per mark, in order; `None` where it is not drawn.
    places: Vec<Option<(i32, i32)>>,
}

pub(super) fn error_by_stage(marks: &[Mark]) -> Result<Plot> {
    let mut stages: Vec<&str> = Vec::new();
    for mark in marks {
        if !stages.contains(&mark.stage.as_str()) {
            stages.push(&mark.stage);
        }
    }
    let last = stages.len().checked_sub(1).context("a plot of no stages")?;
    let (low, high) = decades(marks.iter().flat_map(|mark| [mark.error, mark.bound]).flatten());
    let longest = stages.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(LONGEST) as u32;
    let size = (1080, 330 + 13 * longest / 2);
    let mut svg = String::new();
    let mut places = Vec::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(8)
            .margin_left(16)
            .x_label_area_size(16 + 13 * longest / 2)
            .y_label_area_size(56)
            .build_cartesian_2d((0..last).into_segmented(), (low..high).log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_labels(stages.len())
            .x_label_formatter(&|_| String::new())
            .y_labels(10)
            .y_label_formatter(&|y: &f64| format!("{y:.0e}"))
            .y_label_style(text(12))
            .y_desc("largest |a - b|")
            .axis_desc_style(text(13))
            .draw()
            .map_err(failed)?;
        // The mesh would centre them on the axis.
        let upright = text(12).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Right, VPos::Center));
        for (at, stage) in stages.iter().enumerate().step_by(stages.len().div_ceil(NAMED)) {
            let (x, y) = chart.backend_coord(&(SegmentValue::CenterOf(at), low));
            root.draw(&Text::new(shortened(stage, LONGEST), (x, y + 8), upright.clone())).map_err(failed)?;
        }
        for mark in marks {
            let at = stages.iter().position(|stage| *stage == mark.stage).unwrap_or(last);
            if let Some(bound) = mark.bound {
                let y = bound.clamp(low, high);
                let ends = vec![(SegmentValue::Exact(at), y), (SegmentValue::Exact(at + 1), y)];
                chart.plotting_area().draw(&PathElement::new(ends, BOUND.stroke_width(2))).map_err(failed)?;
            }
            let place = mark.error.map(|error| (SegmentValue::CenterOf(at), error.clamp(low, high)));
            if let Some(place) = place.clone() {
                let colour = EXECUTORS[mark.executor.min(1)];
                let style = if mark.diverged { BAD.filled() } else { colour.filled() };
                let area = chart.plotting_area();
                match mark.executor {
                    0 => area.draw(&Circle::new(place, 4, style)).map_err(failed)?,
                    _ => area.draw(&TriangleMarker::new(place, 5, style)).map_err(failed)?,
                }
            }
            places.push(place.map(|place| chart.backend_coord(&place)));
        }
        root.present().map_err(failed)?;
    }
    Ok(Plot { svg, size, places })
}

/// Whole powers of ten around what is positive, a decade of room below; what is zero stands on the lower edge, and what is
/// infinite on the upper one.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs = values.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10);
    let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
    let (low, high) = if low <= high { (low.floor() - 1.0, high.floor() + 1.0) } else { (-9.0, 0.0) };
    (10f64.powf(low), 10f64.powf(high))
}

/// A heat map: axes as SVG, cells as a PNG of one pixel per bin that belongs into `frame`.
#[derive(Serialize)]
pub(super) struct Heat {
    svg: String,
    size: (u32, u32),
    /// Left, top, width, height.
    frame: (i32, i32, i32, i32),
    /// A `data:` address.
    cells: String,
    /// Where the worst element lies.
    worst: (f64, f64),
    /// From the smallest difference to the largest, on a log scale.
    scale: Option<Scale>,
    /// Whether some bin holds an element where only one side is a number.
    infinite: bool,
}

#[derive(Serialize)]
struct Scale {
    colours: Vec<String>,
    low: f64,
    high: f64,
}

const WIDEST: u32 = 620;

pub(super) fn heat(map: &Map, worst: &[usize]) -> Result<Heat> {
    let [rows, columns] = map.counts();
    let cell = (f64::from(WIDEST) / columns as f64).min(420.0 / rows as f64).min(48.0);
    let side = |bins: usize| ((bins as f64 * cell) as u32).max(24);
    let (left, below, around) = (64, 48, 8);
    let size = (left + side(columns) + 4 * around, side(rows) + below + 2 * around);
    let mut svg = String::new();
    let frame = {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        let (height, width) = (map.size[0] as f64, map.size[1] as f64);
        let mut chart = ChartBuilder::on(&root)
            .margin(around)
            .margin_right(3 * around)
            .x_label_area_size(below)
            .y_label_area_size(left)
            .build_cartesian_2d(0.0..width, -height..0.0)
            .map_err(failed)?;
        let per = |bin: usize| if bin == 1 { String::new() } else { format!(", {bin} to a cell") };
        chart
            .configure_mesh()
            .disable_mesh()
            .axis_style(INK)
            .x_labels((side(columns) / 60).max(1) as usize)
            .y_labels((side(rows) / 30).max(1) as usize)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{:.0}", y.abs()))
            .label_style(text(12))
            .axis_desc_style(text(13))
            .x_desc(format!("last axis{}", per(map.bin[1])))
            .y_desc(format!("axis before it{}", per(map.bin[0])))
            .draw()
            .map_err(failed)?;
        let (x, y) = chart.plotting_area().get_pixel_range();
        let long = |range: &Range<i32>| range.end - range.start;
        (x.start, y.start, long(&x), long(&y))
    };
    let finite = || map.bins.iter().copied().filter(|bin| *bin > 0.0 && bin.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(0.0, f64::max));
    let place =
        |index: usize, bin: usize, bins: usize, long: i32| ((index / bin) as f64 + 0.5) / bins as f64 * f64::from(long);
    let from_the_end = |axis: usize| worst.iter().rev().nth(axis).copied().unwrap_or(0);
    Ok(Heat {
        svg,
        size,
        frame,
        cells: png(map, low, high)?,
        worst: (
            f64::from(frame.0) + place(from_the_end(0), map.bin[1], columns, frame.2),
            f64::from(frame.1) + place(from_the_end(1), map.bin[0], rows, frame.3),
        ),
        scale: (high > 0.0).then(|| Scale { colours: colours(), low, high }),
        infinite: map.bins.iter().any(|bin| bin.is_infinite()),
    })
}

/// Brightest where the difference is largest. A bin without any is clear; one that is infinite has the page's colour of alarm.
fn png(map: &Map, low: f64, high: f64) -> Result<String> {
    let [rows, columns] = map.counts();
    let mut pixels = Vec::with_capacity(4 * map.bins.len());
    for bin in &map.bins {
        pixels.extend(match *bin {
            0.0 => [0, 0, 0, 0],
            x if x.is_infinite() => [0xd6, 0x33, 0x6c, 0xff],
            x => {
                let RGBColor(r, g, b) = colour(if high > low { (x / low).ln() / (high / low).ln() } else { 1.0 });
                [r, g, b, 0xff]
            }
        });
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, columns as u32, rows as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.context("making the picture of the heat map")?;
    Ok(format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(file)))
}

fn colour(share: f64) -> RGBColor {
    ViridisRGB.get_color(share as f32)
}

fn colours() -> Vec<String> {
    let steps = (0..=8).map(|step| colour(f64::from(step) / 8.0));
    steps.map(|RGBColor(r, g, b)| format!("#{r:02x}{g:02x}{b:02x}")).collect()
}

fn text<'a>(size: u32) -> TextStyle<'a> {
    ("sans-serif", size).into_font().color(&INK)
}

fn shortened(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name.to_owned(),
    }
}

fn failed(error: impl Display) -> crate::error::Error {
    anyhow!("drawing the report: {error}")
}
