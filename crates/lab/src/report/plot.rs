//! Renders samples as an SVG chart: medians, with whiskers from the lowest to the highest of a few
//! repetitions, or from the lower to the upper quartile of more.
//!
//! Categories whose labels do not fit side by side are drawn downwards, with horizontal columns. A
//! 0, which a logarithmic axis cannot show, is drawn at the axis, next to a tick labelled 0.
//! Published numbers have hollow symbols and the colour of the system that they belong to. Points
//! that are marked, such as fitted ones, are crosses. A series without points is not in the legend.
//!
//! The drawing uses the colours of a light page. The page's style ([`super::pen::style`]) maps them
//! to dark ones, so the drawing needs no knowledge of the colour scheme.

use super::legend::Legend;
use super::pen::{Area, Drawn, GRID, INK, POINT, Pen, cross, path, symbol};
use super::ruler::{Direction, Ruler, position};
use crate::number::{FEW_REPETITIONS, median, whiskers};
use crate::result::{Axis, Samples, Scale, Series};
use clearway_harness::Res;
use plotters::prelude::*;

const WIDTH: i32 = 900;
/// Width of the plot beside a long legend, with the labels of its axis.
const MIN_PLOT: i32 = 560;
const MIN_HEIGHT: i32 = 400;
/// Space for the labels beside the axes.
const LEFT: i32 = 90;
const BOTTOM: i32 = 52;
const TOP: i32 = 14;
const MARGIN: i32 = 6;
const FONT: (&str, i32) = ("sans-serif", 16);
/// Width of a letter of an axis label, about.
const LETTER_WIDTH: i32 = 8;
/// Height of a horizontal column, and the space between two categories.
const ROW: i32 = 11;
const ROW_GAP: i32 = 9;
/// Share of a category's width that its columns take.
const COLUMNS: f64 = 0.7;

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The `svg` element.
    pub svg: String,
    /// Repetitions that are not drawn: they gave no number, or one that the axis cannot show.
    pub left_out: usize,
    /// Points whose value is 0 on a logarithmic axis; they are drawn at the axis.
    pub zeros: usize,
    /// What the whiskers are.
    pub whiskers: Whiskers,
    /// Series without a point.
    pub absent: Vec<String>,
}

/// Which whiskers a chart has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whiskers {
    /// From the lowest to the highest repetition.
    pub of_few: bool,
    /// From the lower to the upper quartile.
    pub of_many: bool,
}

/// A point to draw, in axis coordinates. Minus infinity is a 0 on a logarithmic axis.
struct Mark {
    x: f64,
    median: f64,
    lower: f64,
    upper: f64,
    repetitions: usize,
    is_cross: bool,
}

/// Draws the samples; returns `None` if there is nothing to draw.
pub fn draw(samples: &Samples) -> Res<Option<Drawing>> {
    let mut left_out = 0;
    let of = |series: &Series| (series.clone(), marks(samples, series, &mut left_out));
    let (present, absent): (Vec<_>, Vec<_>) =
        samples.series.iter().map(of).partition(|(_, marks)| !marks.is_empty());
    let absent = absent.into_iter().map(|(series, _)| series.name).collect();
    let (series, marks): (Vec<Series>, Vec<Vec<Mark>>) = present.into_iter().unzip();
    let samples = &Samples { series, ..samples.clone() };
    let all = || marks.iter().flatten();
    let xs: Vec<f64> = all().map(|m| m.x).collect();
    let zeros = all().filter(|m| m.median == f64::NEG_INFINITY).count();
    let has_zero = all().any(|m| m.lower == f64::NEG_INFINITY || m.median == f64::NEG_INFINITY);
    let mut ys: Vec<f64> =
        all().flat_map(|m| [m.lower, m.median, m.upper]).filter(|y| y.is_finite()).collect();
    if ys.is_empty() && has_zero {
        ys.push(0.0);
    }
    let across = Ruler::over(&samples.x, &xs, Direction::Independent);
    let up = Ruler::over(&samples.y, &ys, Direction::Measured);
    let Some((across, up)) = across.zip(up) else { return Ok(None) };
    let up = if has_zero { up.with_zero() } else { up };
    let spread = || all().filter(|mark| mark.lower != mark.upper);
    let whiskers = Whiskers {
        of_few: spread().any(|mark| mark.repetitions <= FEW_REPETITIONS),
        of_many: spread().any(|mark| mark.repetitions > FEW_REPETITIONS),
    };
    let mut svg = String::new();
    chart(&mut svg, samples, &marks, &across, &up)
        .map_err(|e| format!("chart `{}`: {e}", samples.title))?;
    let svg = svg.replacen("<svg ", "<svg role=\"img\" ", 1);
    Ok(Some(Drawing { svg, left_out, zeros, whiskers, absent }))
}

fn marks(samples: &Samples, series: &Series, left_out: &mut usize) -> Vec<Mark> {
    let scale = &samples.y.scale;
    let place = |y: f64| match position(scale, y) {
        None if y == 0.0 && *scale == Scale::Log => Some(f64::NEG_INFINITY),
        place => place,
    };
    let marked = samples.marked.iter().flat_map(|marked| &marked.points);
    let crosses: Vec<f64> =
        marked.filter(|(name, _)| *name == series.name).map(|(_, x)| *x).collect();
    let mut marks = Vec::new();
    for point in &series.points {
        let values: Vec<f64> = point.y.iter().copied().filter(|y| place(*y).is_some()).collect();
        let mark = || {
            let (lower, upper) = whiskers(&values)?;
            Some(Mark {
                x: position(&samples.x.scale, point.x)?,
                median: place(median(&values)?)?,
                lower: place(lower)?,
                upper: place(upper)?,
                repetitions: values.len(),
                is_cross: crosses.contains(&point.x),
            })
        };
        let mark = mark();
        let drawn = if mark.is_some() { values.len() } else { 0 };
        *left_out += point.y.len() - drawn;
        marks.extend(mark);
    }
    marks
}

fn chart(
    svg: &mut String,
    samples: &Samples,
    marks: &[Vec<Mark>],
    across: &Ruler,
    up: &Ruler,
) -> Drawn {
    let longest = |names: &mut dyn Iterator<Item = &String>| {
        names.map(|name| name.chars().count()).max().unwrap_or(0) as i32 * LETTER_WIDTH
    };
    let legend = Legend::of(samples);
    let right = MIN_PLOT.max(WIDTH - legend.width());
    let width = right + legend.width();
    let labels = longest(&mut across.marks.iter().map(|mark| &mark.1));
    let categories = across.marks.len() as i32;
    let downwards = matches!(samples.x.scale, Scale::Names(_))
        && categories * (labels + LETTER_WIDTH) > right - LEFT;
    let series = samples.series.len() as i32;
    let rows = if downwards { categories * (series * ROW + ROW_GAP) + TOP + BOTTOM } else { 0 };
    let height = MIN_HEIGHT.max(TOP + legend.height()).max(rows);
    let root = SVGBackend::with_string(svg, (width as u32, height as u32)).into_drawing_area();
    let (plot, _) = root.split_horizontally(right);
    let text = TextStyle::from(FONT.into_font()).color(&INK);
    let (x, y, left) = if downwards {
        (up.clone(), across.reversed(), labels + LEFT / 2)
    } else {
        (across.clone(), up.clone(), LEFT)
    };
    let titles = [title(&samples.x), title(&samples.y)];
    let mut chart = ChartBuilder::on(&plot)
        .margin_top(TOP)
        .margin_left(MARGIN)
        .margin_right(MARGIN)
        .margin_bottom(MARGIN)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(left)
        .build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    if downwards {
        mesh.disable_y_mesh();
    } else {
        mesh.disable_x_mesh();
    }
    mesh.bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text.clone())
        .axis_desc_style(text.clone())
        .x_desc(&titles[usize::from(downwards)])
        .y_desc(&titles[usize::from(!downwards)])
        .draw()?;
    let (columns, pens) = (has_columns(samples), Pen::all(&samples.series));
    for (which, (marks, pen)) in marks.iter().zip(&pens).enumerate() {
        let at = |x: f64, y: f64| {
            let y = y.max(up.from);
            chart.plotting_area().map_coordinate(&if downwards { (y, x) } else { (x, y) })
        };
        if columns {
            draw_columns(&root, samples, (which, pen), marks, at)?
        } else {
            draw_line(&root, samples, (which, pen), marks, at)?
        }
    }
    legend.draw(&root, (right + 16, TOP), &pens, columns, &text)?;
    root.present()
}

/// Categories get columns. Columns start at zero, which a logarithmic axis does not have.
fn has_columns(samples: &Samples) -> bool {
    matches!(samples.x.scale, Scale::Names(_)) && samples.y.scale == Scale::Linear
}

/// Returns the offset of a series from the category's centre, and its width.
fn column_offset(samples: &Samples, which: usize) -> (f64, f64) {
    let width = COLUMNS / samples.series.len() as f64;
    (which as f64 * width - COLUMNS / 2.0, width)
}

fn draw_columns(
    root: &Area,
    samples: &Samples,
    (which, pen): (usize, &Pen),
    marks: &[Mark],
    at: impl Fn(f64, f64) -> (i32, i32),
) -> Drawn {
    let (begin, width) = column_offset(samples, which);
    for mark in marks {
        let at = |share: f64, y: f64| at(mark.x + begin + share * width, y);
        root.draw(&Rectangle::new([at(0.05, mark.median), at(0.95, 0.0)], pen.colour.filled()))?;
        whisker(root, at(0.5, mark.lower), at(0.5, mark.upper), &INK)?;
    }
    Ok(())
}

fn draw_line(
    root: &Area,
    samples: &Samples,
    (which, pen): (usize, &Pen),
    marks: &[Mark],
    at: impl Fn(f64, f64) -> (i32, i32),
) -> Drawn {
    let names = matches!(samples.x.scale, Scale::Names(_));
    let (begin, width) = column_offset(samples, which);
    let aside = if names { begin + width / 2.0 } else { 0.0 };
    let is_zero = |mark: &Mark| mark.median == f64::NEG_INFINITY;
    if !names {
        // The slope of a line to a 0 would be meaningless.
        for part in marks.split(is_zero).filter(|part| !part.is_empty()) {
            let line: Vec<_> = part.iter().map(|mark| at(mark.x, mark.median)).collect();
            path(root, &line, pen)?;
        }
    }
    for mark in marks {
        let at = |y: f64| at(mark.x + aside, y);
        whisker(root, at(mark.lower), at(mark.upper), &pen.colour)?;
        let mut place = at(mark.median);
        if is_zero(mark) && !names {
            // Zeros of several series stand side by side.
            let middle = samples.series.len() as i32 / 2;
            place.0 += (which as i32 - middle) * (2 * POINT - 1);
        }
        match mark.is_cross {
            true => cross(root, place, &pen.colour)?,
            false => symbol(root, place, pen)?,
        }
    }
    Ok(())
}

/// Returns the axis title: quantity, unit, and whether the scale is logarithmic.
fn title(axis: &Axis) -> String {
    let unit = if axis.unit.is_empty() { String::new() } else { format!(" ({})", axis.unit) };
    let log = if axis.scale == Scale::Log { ", log scale" } else { "" };
    format!("{}{unit}{log}", axis.label)
}

fn whisker(root: &Area, low: (i32, i32), high: (i32, i32), colour: &RGBColor) -> Drawn {
    if low == high {
        return Ok(());
    }
    let across = if low.1 == high.1 { (0, 3) } else { (3, 0) };
    let end =
        |at: (i32, i32)| [(at.0 - across.0, at.1 - across.1), (at.0 + across.0, at.1 + across.1)];
    for ends in [[low, high], end(low), end(high)] {
        root.draw(&PathElement::new(ends, colour.stroke_width(1)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::pen::{COLOURS, style};
    use super::*;
    use crate::result::{Marked, Point, example};

    fn samples(x: Axis, y: Axis, points: &[(f64, &[f64])]) -> Samples {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: y.to_vec() }).collect();
        let series = vec![Series { name: "ours".into(), points }];
        Samples { title: "t".into(), x, y, series, drawn: true, marked: None }
    }

    fn drawn(samples: &Samples) -> Drawing {
        let drawing = draw(samples).unwrap().unwrap();
        assert!(drawing.svg.trim_end().ends_with("</svg>"));
        for wrong in ["NaN", "inf"] {
            assert!(!drawing.svg.contains(wrong), "{}", drawing.svg);
        }
        drawing
    }

    fn linear() -> (Axis, Axis) {
        (Axis::linear("threads", ""), Axis::linear("throughput", "TPS"))
    }

    #[test]
    fn charts_have_axis_titles_and_a_legend() {
        let drawing = drawn(&example().findings.samples[0]);
        for part in [
            "clients, log scale",
            "throughput (TPS)",
            "clearway",
            "&lt;peer&gt; &amp; &quot;co&quot;",
            ">\n100\n<",
        ] {
            assert!(drawing.svg.contains(part), "`{part}` is not in\n{}", drawing.svg);
        }
        assert_eq!(drawing.left_out, 6, "the repetitions that gave no number");
    }

    #[test]
    fn a_single_point_is_drawn() {
        let (x, y) = linear();
        let drawing = drawn(&samples(x, y, &[(4.0, &[5.0])]));
        assert_eq!(drawing.svg.matches("<circle").count(), 2);
        assert_eq!(drawing.left_out, 0);
    }

    #[test]
    fn no_points_give_no_chart() {
        let (x, y) = linear();
        assert_eq!(draw(&samples(x.clone(), y.clone(), &[])), Ok(None));
        assert_eq!(draw(&samples(x.clone(), y.clone(), &[(1.0, &[])])), Ok(None));
        assert_eq!(draw(&samples(x.clone(), y.clone(), &[(1.0, &[f64::NAN])])), Ok(None));
        assert_eq!(draw(&Samples { series: Vec::new(), ..samples(x, y, &[]) }), Ok(None));
        assert_eq!(
            draw(&samples(Axis::log("x", ""), Axis::log("y", ""), &[(1.0, &[f64::NAN, -1.0])])),
            Ok(None)
        );
    }

    #[test]
    fn whiskers_span_few_repetitions_or_the_quartiles() {
        let (x, y) = linear();
        let points: &[(f64, &[f64])] =
            &[(1.0, &[100.0, 0.0, 10.0]), (2.0, &[0.0, 1.0, 2.0, 3.0, 100.0])];
        let samples = samples(x, y, points);
        let marks = marks(&samples, &samples.series[0], &mut 0);
        let of = |at: usize| (marks[at].lower, marks[at].median, marks[at].upper);
        assert_eq!((of(0), of(1)), ((0.0, 10.0, 100.0), (1.0, 2.0, 3.0)));
        assert_eq!(drawn(&samples).whiskers, Whiskers { of_few: true, of_many: true });
    }

    #[test]
    fn marked_points_are_crosses() {
        let (x, y) = linear();
        let mut samples = samples(x, y, &[(1.0, &[5.0]), (2.0, &[6.0])]);
        let circles = |samples: &Samples| drawn(samples).svg.matches("<circle").count();
        assert_eq!(circles(&samples), 3, "two points and the legend");
        let points = vec![("ours".to_owned(), 2.0)];
        samples.marked = Some(Marked { what: "fitted".into(), points });
        assert_eq!(circles(&samples), 2);
        assert!(texts(&drawn(&samples).svg).contains(&"fitted"));
    }

    #[test]
    fn series_without_points_are_not_in_the_legend() {
        let (x, y) = linear();
        let mut samples = samples(x, y, &[(1.0, &[5.0]), (2.0, &[6.0])]);
        samples.series.push(Series { name: "none".into(), points: Vec::new() });
        let drawing = drawn(&samples);
        assert_eq!(drawing.absent, ["none"]);
        assert!(!texts(&drawing.svg).contains(&"none"));
    }

    #[test]
    fn nan_is_left_out_and_counted() {
        let (x, y) = linear();
        let drawing = drawn(&samples(
            x,
            y,
            &[(1.0, &[f64::NAN, 2.0]), (f64::NAN, &[1.0]), (2.0, &[f64::INFINITY])],
        ));
        assert_eq!((drawing.svg.matches("<circle").count(), drawing.left_out), (2, 3));
        let drawing = drawn(&samples(
            Axis::log("x", ""),
            Axis::log("y", ""),
            &[(1.0, &[-1.0, 3.0]), (0.0, &[1.0])],
        ));
        assert_eq!(drawing.left_out, 2);
    }

    #[test]
    fn categories_have_columns() {
        let names = Axis::names("protocol", vec!["simple".into(), "prepared".into()]);
        let drawing =
            drawn(&samples(names, Axis::linear("y", ""), &[(0.0, &[1.0, 2.0]), (1.0, &[3.0])]));
        assert!(drawing.svg.contains(">\nprepared\n<"));
        assert_eq!(drawing.svg.matches("<rect").count(), 3);
        let names = Axis::names("protocol", vec!["simple".into()]);
        let drawing = drawn(&samples(names, Axis::log("y", ""), &[(0.0, &[1e6])]));
        assert_eq!(
            drawing.svg.matches("<circle").count(),
            2,
            "a logarithmic axis has no zero for columns"
        );
    }

    #[test]
    fn dashed_lines_may_have_zero_length() {
        let (x, y) = linear();
        let mut many = samples(x, y, &[]);
        for points in [vec![], vec![1.0], vec![1.0, 1.0], vec![1.0, 1.0, 2.0]] {
            let points = points.into_iter().map(|x| Point { x, y: vec![x] }).collect();
            many.series = vec![Series { name: "ours".into(), points }; COLOURS.len() + 1];
            let drawing = draw(&many).unwrap();
            assert_eq!(drawing.is_some(), !many.series[0].points.is_empty());
        }
    }

    fn texts(svg: &str) -> Vec<&str> {
        svg.split("<text").skip(1).filter_map(|t| t.split(['\n', '<']).nth(1)).collect()
    }

    #[test]
    fn zeros_are_drawn_at_the_log_axis() {
        let (x, y) = (Axis::log("threads", ""), Axis::log("waits", ""));
        let points: &[(f64, &[f64])] = &[(1.0, &[0.0, 0.0]), (8.0, &[50.0, 70.0]), (16.0, &[0.0])];
        let drawing = drawn(&samples(x.clone(), y.clone(), points));
        assert_eq!((drawing.zeros, drawing.left_out), (2, 0));
        // Three points and the legend; the axis has a tick for 0.
        assert_eq!(drawing.svg.matches("<circle").count(), 4);
        assert!(texts(&drawing.svg).contains(&"0"), "{:?}", texts(&drawing.svg));
        let only_zeros = drawn(&samples(x.clone(), y.clone(), &[(1.0, &[0.0])]));
        assert_eq!((only_zeros.zeros, only_zeros.svg.matches("<circle").count()), (1, 2));
        assert_eq!(drawn(&samples(x, Axis::linear("y", ""), &[(1.0, &[0.0])])).zeros, 0);
    }

    /// Returns the vertical positions of the labels of a category axis.
    fn label_rows(svg: &str, names: &[String]) -> Vec<i32> {
        let row = |name: &String| {
            let text =
                svg.split("<text").find(|text| text.contains(&format!("\n{name}\n"))).unwrap();
            let y = text.split(" y=\"").nth(1).unwrap();
            y.split('"').next().unwrap().parse().unwrap()
        };
        names.iter().map(row).collect()
    }

    #[test]
    fn categories_without_room_are_drawn_downwards() {
        let names: Vec<String> = (0..30).map(|at| format!("policy-{at}/combining")).collect();
        let points: Vec<(f64, &[f64])> = (0..30).map(|at| (f64::from(at), &[5.0][..])).collect();
        let (x, y) = (Axis::names("cache", names.clone()), Axis::linear("throughput", "/us"));
        let rows = label_rows(&drawn(&samples(x, y, &points)).svg, &names);
        let distances: Vec<i32> = rows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(distances.iter().all(|distance| *distance >= 16), "{distances:?}");
        let names: Vec<String> = ["a", "b"].map(String::from).to_vec();
        let (x, y) = (Axis::names("cache", names.clone()), Axis::linear("throughput", "/us"));
        let rows = label_rows(&drawn(&samples(x, y, &points[..2])).svg, &names);
        assert_eq!(rows[0], rows[1], "labels that fit stand side by side");
    }

    #[test]
    fn every_colour_has_a_dark_variant() {
        let style = style();
        let drawing = drawn(&example().findings.samples[0]);
        for part in drawing.svg.split("=\"#").skip(1) {
            assert!(style.contains(&format!("\"#{}\"", &part[..6])), "#{}", &part[..6]);
        }
    }
}
