//! Charts as inline SVG: axes with round ticks, a grid, lines and areas, and the figures of each
//! second in a title that shows on hovering. Drawn twice, wide and narrow, and the style sheet
//! shows one: scaled text is not readable on a phone.

use super::super::format::{short, span};
use super::html::escape;
use std::fmt::Write;

/// Points of a line at most: more than the narrowest screen has columns to tell apart, and files stay small.
const POINTS_MAX: usize = 240;

/// Width of a percentile's label, such as `99.9999 %`, with its margin.
const NINES_WIDTH: f64 = 95.0;

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineStyle {
    Line,
    Area,
    Dashed,
}

/// One line of a chart.
pub(super) struct Series {
    pub(super) name: String,
    /// Number of a colour of the style sheet: `--c1` to `--c6`.
    pub(super) colour: u8,
    pub(super) look: LineStyle,
    pub(super) points: Vec<(f64, f64)>,
}

/// What the x axis shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Across {
    /// Seconds.
    Time,
    /// Percentiles: `x` is `-log10(1 - p)`, so that each nine has the same width.
    Nines,
}

pub(super) struct Chart {
    pub(super) title: String,
    pub(super) across: Across,
    pub(super) logarithmic: bool,
    /// The lowest maximum of the axis (100 for per cent).
    pub(super) top: f64,
    pub(super) unit: fn(f64) -> String,
    pub(super) series: Vec<Series>,
}

/// A drawing's size in pixels, and the margins of its plot.
struct Frame {
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

const WIDE: Frame = Frame { width: 1040.0, height: 280.0, left: 66.0, right: 14.0, top: 12.0, bottom: 30.0 };
const NARROW: Frame = Frame { width: 340.0, height: 230.0, left: 54.0, right: 8.0, top: 10.0, bottom: 28.0 };

/// Maps values to places on an axis.
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn part(&self, value: f64) -> f64 {
        let place = |value: f64| if self.logarithmic { value.max(self.low).log10() } else { value };
        let (low, high) = (place(self.low), place(self.high));
        ((place(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// A linear axis from zero to a round figure.
    fn linear(high: f64, steps: f64) -> Scale {
        let high = if high > 0.0 { high } else { 1.0 };
        let rough = high / steps;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|times| times * power);
        let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power);
        let count = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as usize).map(|tick| tick as f64 * step).collect();
        Scale { low: 0.0, high: count * step, logarithmic: false, ticks }
    }

    /// A logarithmic axis between two powers of ten.
    fn decades(low: f64, high: f64) -> Scale {
        let first = low.log10().floor() as i32;
        let last = (high.log10() - 1e-9).ceil() as i32;
        let last = last.max(first + 1);
        let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
        Scale { low: 10f64.powi(first), high: 10f64.powi(last), logarithmic: true, ticks }
    }
}

impl Chart {
    /// The chart with its heading and legend; an empty text when there is nothing to draw.
    pub(super) fn html(&self) -> String {
        if self.series.iter().all(|series| series.points.is_empty()) {
            return String::new();
        }
        let mut legend = String::new();
        for series in &self.series {
            let dashed = if series.look == LineStyle::Dashed { " dashed" } else { "" };
            let _ = write!(
                legend,
                "<li><i class=\"c{}{dashed}\"></i>{}</li>",
                series.colour,
                escape(&series.name)
            );
        }
        let scale = if self.logarithmic { " <small>logarithmic</small>" } else { "" };
        format!(
            "<figure><figcaption><h3>{}{scale}</h3><ul class=\"legend\">{legend}</ul></figcaption>{}{}</figure>\n",
            escape(&self.title),
            self.svg(&WIDE, "wide"),
            self.svg(&NARROW, "narrow")
        )
    }

    fn svg(&self, frame: &Frame, class: &str) -> String {
        let (across, up) = (self.across_scale(frame), self.up_scale());
        let mut svg = format!(
            "<svg class=\"chart {class}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            frame.width,
            frame.height,
            escape(&self.title)
        );
        self.axes(frame, &across, &up, &mut svg);
        for series in &self.series {
            draw(series, frame, &across, &up, &mut svg);
        }
        self.hover(frame, &across, &up, &mut svg);
        svg.push_str("</svg>");
        svg
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.series.iter().flat_map(|series| series.points.iter().copied())
    }

    fn across_scale(&self, frame: &Frame) -> Scale {
        let high = self.points().map(|(x, _)| x).fold(0.0, f64::max);
        let steps = if frame.width < 500.0 { 4.0 } else { 10.0 };
        let mut scale = Scale::linear(high, steps);
        if self.across == Across::Nines {
            // Only every second or third label where all of them would overlap.
            let every = (high * NINES_WIDTH / (frame.width - frame.left)).ceil().max(1.0) as usize;
            scale.ticks = (0..=high as usize).step_by(every).map(|nines| nines as f64).collect();
            scale.high = high.max(1.0);
        } else {
            scale.high = high.max(1.0);
            scale.ticks.retain(|tick| *tick <= high.max(1.0) && tick.fract() == 0.0);
        }
        scale
    }

    fn up_scale(&self) -> Scale {
        let high = self.points().map(|(_, y)| y).fold(self.top, f64::max);
        let low = self.points().map(|(_, y)| y).filter(|y| *y > 0.0).fold(f64::INFINITY, f64::min);
        if self.logarithmic && low.is_finite() { Scale::decades(low, high) } else { Scale::linear(high, 4.0) }
    }

    fn axes(&self, frame: &Frame, across: &Scale, up: &Scale, svg: &mut String) {
        let (right, bottom) = (frame.width - frame.right, frame.height - frame.bottom);
        for tick in &up.ticks {
            let y = frame.y(up, *tick);
            let _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{:.1} {y:.1}H{right:.1}\"/><text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                frame.left,
                frame.left - 8.0,
                y + 4.0,
                escape(&(self.unit)(*tick))
            );
        }
        for tick in &across.ticks {
            let x = frame.x(across, *tick);
            let place = match () {
                () if x > right - 12.0 => "end",
                () if x < frame.left + 4.0 => "start",
                () => "middle",
            };
            let _ = write!(
                svg,
                "<path class=\"grid faint\" d=\"M{x:.1} {:.1}V{bottom:.1}\"/><text class=\"tick {place}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                frame.top,
                bottom + 19.0,
                self.across_name(*tick)
            );
        }
        let _ = write!(svg, "<path class=\"axis\" d=\"M{:.1} {bottom:.1}H{right:.1}\"/>", frame.left);
    }

    fn across_name(&self, value: f64) -> String {
        match self.across {
            Across::Time if value >= 600.0 => span(value),
            Across::Time => format!("{} s", short(value)),
            Across::Nines => match value as usize {
                0 => "0 %".into(),
                1 => "90 %".into(),
                2 => "99 %".into(),
                nines => format!("99.{} %", "9".repeat(nines - 2)),
            },
        }
    }

    /// One invisible column for each point, whose title shows the values of all series.
    fn hover(&self, frame: &Frame, across: &Scale, up: &Scale, svg: &mut String) {
        let Some(longest) = self.series.iter().max_by_key(|series| series.points.len()) else { return };
        let places = thin(&longest.points);
        let (top, bottom) = (frame.y(up, up.high), frame.height - frame.bottom);
        for (index, (x, _)) in places.iter().enumerate() {
            let middle = frame.x(across, *x);
            let before =
                index.checked_sub(1).map_or(frame.left, |i| (frame.x(across, places[i].0) + middle) / 2.0);
            let after = places
                .get(index + 1)
                .map_or(frame.width - frame.right, |next| (frame.x(across, next.0) + middle) / 2.0);
            let mut title = match self.across {
                Across::Time => format!("{} s", short(*x)),
                Across::Nines => format!("{} %", nines_to_percentile(*x)),
            };
            for series in &self.series {
                if let Some((_, y)) = nearest(&series.points, *x) {
                    let _ = write!(title, "\n{}: {}", series.name, (self.unit)(y));
                }
            }
            let _ = write!(
                svg,
                "<g class=\"hover\"><rect x=\"{before:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect><path d=\"M{middle:.1} {top:.1}V{bottom:.1}\"/></g>",
                (after - before).max(0.5),
                bottom - top,
                escape(&title)
            );
        }
    }
}

impl Frame {
    fn x(&self, scale: &Scale, value: f64) -> f64 {
        self.left + scale.part(value) * (self.width - self.left - self.right)
    }

    fn y(&self, scale: &Scale, value: f64) -> f64 {
        self.height - self.bottom - scale.part(value) * (self.height - self.top - self.bottom)
    }
}

fn draw(series: &Series, frame: &Frame, across: &Scale, up: &Scale, svg: &mut String) {
    let points = thin(&series.points);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", frame.x(across, *x), frame.y(up, *y));
    }
    if series.look == LineStyle::Area {
        let bottom = frame.height - frame.bottom;
        let _ = write!(
            svg,
            "<path class=\"area f{}\" d=\"{path}L{:.1} {bottom:.1}L{:.1} {bottom:.1}Z\"/>",
            series.colour,
            frame.x(across, last.0),
            frame.x(across, first.0)
        );
    }
    let dashed = if series.look == LineStyle::Dashed { " dashed" } else { "" };
    if points.len() == 1 {
        let (x, y) = (frame.x(across, first.0), frame.y(up, first.1));
        let _ = write!(svg, "<circle class=\"s{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>", series.colour);
    } else {
        let _ = write!(svg, "<path class=\"line s{}{dashed}\" d=\"{path}\"/>", series.colour);
    }
}

/// At most [`POINTS_MAX`]: of each group of neighbours the highest, so that no peak is lost, at the
/// x of the first.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let run = points.len().div_ceil(POINTS_MAX);
    let highest = |run: &[(f64, f64)]| (run[0].0, run.iter().map(|point| point.1).fold(f64::MIN, f64::max));
    let mut thinned: Vec<(f64, f64)> = points.chunks(run).map(highest).collect();
    if let (Some(last), Some(end)) = (thinned.last_mut(), points.last()) {
        last.0 = end.0;
    }
    thinned
}

fn nearest(points: &[(f64, f64)], x: f64) -> Option<(f64, f64)> {
    let after = points.partition_point(|point| point.0 < x);
    let candidates = [after.checked_sub(1).and_then(|index| points.get(index)), points.get(after)];
    candidates.into_iter().flatten().copied().min_by(|a, b| (a.0 - x).abs().total_cmp(&(b.0 - x).abs()))
}

/// The percentile at `nines` on the axis: 2 is 99.
fn nines_to_percentile(nines: f64) -> String {
    let percentile = 100.0 - 100.0 * 10f64.powf(-nines);
    let text = format!("{percentile:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
