//! Renders samples as an SVG chart: medians, with whiskers from the lower to the upper quartile of
//! the repetitions.
//!
//! Categories whose labels do not fit side by side are drawn downwards, with horizontal columns. A
//! 0, which a logarithmic axis cannot show, is drawn at the axis, next to a tick labelled 0.
//! Published numbers have hollow symbols and the colour of the system that they belong to.
//!
//! The drawing uses the colours of a light page. The page's style ([`style`]) maps them to dark
//! ones, so the drawing needs no knowledge of the colour scheme.

use super::ruler::{Direction, Ruler, position};
use crate::number::{median, quartiles};
use crate::result::{Axis, Samples, Scale, Series};
use clearway_harness::Res;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: i32 = 900;
const MIN_HEIGHT: i32 = 400;
/// Space for the labels beside the axes.
const LEFT: i32 = 90;
const BOTTOM: i32 = 52;
const TOP: i32 = 14;
const MARGIN: i32 = 6;
const FONT: (&str, i32) = ("sans-serif", 16);
/// The legend is as wide as its longest name, at about this many pixels a letter.
const LETTER_WIDTH: i32 = 8;
const MIN_LEGEND: i32 = 110;
const MAX_LEGEND: i32 = 340;
const LEGEND_LINE: i32 = 22;
/// Half the size of a point's symbol.
const POINT: i32 = 4;
const DASH: i32 = 7;
const GAP: i32 = 4;
/// Height of a horizontal column, and the space between two categories.
const ROW: i32 = 11;
const ROW_GAP: i32 = 9;
/// Share of a category's width that its columns take.
const COLUMNS: f64 = 0.7;

const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
const GRID: RGBColor = RGBColor(0xd5, 0xda, 0xe0);

/// Colours of the series on a light and on a dark page. They are distinguishable to colour-blind
/// readers (after Okabe and Ito). Further series reuse the colours with dashed lines and other
/// symbols.
const COLOURS: [(RGBColor, &str); 8] = [
    (RGBColor(0x00, 0x72, 0xb2), "#58a6e8"),
    (RGBColor(0xd5, 0x5e, 0x00), "#ff8f4d"),
    (RGBColor(0x00, 0x8a, 0x64), "#2fc79a"),
    (RGBColor(0xb0, 0x4a, 0x85), "#e38fc0"),
    (RGBColor(0xb8, 0x86, 0x00), "#e8bd3c"),
    (RGBColor(0x5b, 0x6b, 0x7b), "#a9b7c6"),
    (RGBColor(0x6a, 0x4c, 0xa8), "#b39ae6"),
    (RGBColor(0x8b, 0x3a, 0x2b), "#d98a78"),
];
const SHAPES: usize = 4;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawing {
    /// The `svg` element.
    pub svg: String,
    /// Repetitions that are not drawn: they gave no number, or one that the axis cannot show.
    pub left_out: usize,
    /// Points whose value is 0 on a logarithmic axis; they are drawn at the axis.
    pub zeros: usize,
}

/// A point to draw, in axis coordinates. Minus infinity is a 0 on a logarithmic axis.
struct Mark {
    x: f64,
    median: f64,
    lower: f64,
    upper: f64,
}

/// How a series is drawn.
#[derive(Clone, Copy)]
struct Pen {
    colour: RGBColor,
    symbol: usize,
    dashed: bool,
    hollow: bool,
}

impl Pen {
    fn of(which: usize) -> Self {
        Self {
            colour: COLOURS[which % COLOURS.len()].0,
            // Series that share a colour have different symbols.
            symbol: (which + which / COLOURS.len()) % SHAPES,
            dashed: which >= COLOURS.len(),
            hollow: false,
        }
    }

    /// Returns the pens of all series. A published series has the colour of the first series whose
    /// name starts like its own, up to the comma.
    fn all(series: &[Series]) -> Vec<Self> {
        let pen = |(which, of): (usize, &Series)| {
            if !of.is_published() {
                return Self::of(which);
            }
            let base = of.name.split(',').next().unwrap_or_default();
            let same = |other: &Series| !other.is_published() && other.name.starts_with(base);
            let colour = Self::of(series.iter().position(same).unwrap_or(which)).colour;
            Self { colour, dashed: true, hollow: true, ..Self::of(which) }
        };
        series.iter().enumerate().map(pen).collect()
    }
}

/// Returns the CSS rules that map the colours for a dark page.
pub fn style() -> String {
    let both = |colour: RGBColor, by: &str| {
        let RGBColor(r, g, b) = colour;
        let hex = format!("#{r:02X}{g:02X}{b:02X}");
        format!(
            "figure [fill=\"{hex}\"] {{ fill: {by}; }} figure [stroke=\"{hex}\"] {{ stroke: {by}; }}\n"
        )
    };
    let dark: String = COLOURS.iter().map(|(paper, dark)| both(*paper, dark)).collect();
    let page = both(INK, "var(--ink)") + &both(GRID, "var(--line)");
    format!("{page}@media (prefers-color-scheme: dark) {{\n{dark}}}\n")
}

/// Draws the samples; returns `None` if there is nothing to draw.
pub fn draw(samples: &Samples) -> Res<Option<Drawing>> {
    let mut left_out = 0;
    let marks: Vec<Vec<Mark>> =
        samples.series.iter().map(|series| marks(samples, series, &mut left_out)).collect();
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
    let mut svg = String::new();
    chart(&mut svg, samples, &marks, &across, &up)
        .map_err(|e| format!("chart `{}`: {e}", samples.title))?;
    Ok(Some(Drawing { svg: svg.replacen("<svg ", "<svg role=\"img\" ", 1), left_out, zeros }))
}

fn marks(samples: &Samples, series: &Series, left_out: &mut usize) -> Vec<Mark> {
    let scale = &samples.y.scale;
    let place = |y: f64| match position(scale, y) {
        None if y == 0.0 && *scale == Scale::Log => Some(f64::NEG_INFINITY),
        place => place,
    };
    let mut marks = Vec::new();
    for point in &series.points {
        let values: Vec<f64> = point.y.iter().copied().filter(|y| place(*y).is_some()).collect();
        let mark = || {
            let (lower, upper) = quartiles(&values)?;
            Some(Mark {
                x: position(&samples.x.scale, point.x)?,
                median: place(median(&values)?)?,
                lower: place(lower)?,
                upper: place(upper)?,
            })
        };
        let mark = mark();
        let drawn = if mark.is_some() { values.len() } else { 0 };
        *left_out += point.y.len() - drawn;
        marks.extend(mark);
    }
    marks
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

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
    let legend_width = longest(&mut samples.series.iter().map(|series| &series.name)) + 64;
    let right = WIDTH - legend_width.clamp(MIN_LEGEND, MAX_LEGEND);
    let labels = longest(&mut across.marks.iter().map(|mark| &mark.1));
    let categories = across.marks.len() as i32;
    let downwards = matches!(samples.x.scale, Scale::Names(_))
        && categories * (labels + LETTER_WIDTH) > right - LEFT;
    let series = samples.series.len() as i32;
    let rows = if downwards { categories * (series * ROW + ROW_GAP) + TOP + BOTTOM } else { 0 };
    let height = MIN_HEIGHT.max(TOP + LEGEND_LINE * series).max(rows);
    let root = SVGBackend::with_string(svg, (WIDTH as u32, height as u32)).into_drawing_area();
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
    legend(&root, right + 16, samples, columns, &text)?;
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
        symbol(root, place, pen)?;
    }
    Ok(())
}

/// Returns the axis title: quantity, unit, and whether the scale is logarithmic.
fn title(axis: &Axis) -> String {
    let unit = if axis.unit.is_empty() { String::new() } else { format!(" ({})", axis.unit) };
    let log = if axis.scale == Scale::Log { ", log scale" } else { "" };
    format!("{}{unit}{log}", axis.label)
}

fn path(root: &Area, line: &[(i32, i32)], pen: &Pen) -> Drawn {
    let style = pen.colour.stroke_width(2);
    if !pen.dashed {
        return root.draw(&PathElement::new(line, style));
    }
    root.draw(&DashedPathElement::new(line.iter().copied(), DASH, GAP, style))
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

fn symbol(root: &Area, at: (i32, i32), pen: &Pen) -> Drawn {
    let corner = |x: i32, y: i32| (at.0 + x * POINT, at.1 + y * POINT);
    let corners = match pen.symbol {
        0 if pen.hollow => {
            return root.draw(&Circle::new(at, POINT, pen.colour.stroke_width(2)));
        }
        0 => return root.draw(&Circle::new(at, POINT, pen.colour.filled())),
        1 => vec![corner(0, -1), corner(1, 1), corner(-1, 1)],
        2 => vec![corner(-1, -1), corner(1, -1), corner(1, 1), corner(-1, 1)],
        _ => vec![corner(0, -1), corner(1, 0), corner(0, 1), corner(-1, 0)],
    };
    if pen.hollow {
        let closed: Vec<_> = corners.iter().chain(&corners[..1]).copied().collect();
        return root.draw(&PathElement::new(closed, pen.colour.stroke_width(2)));
    }
    root.draw(&Polygon::new(corners, pen.colour.filled()))
}

fn legend(root: &Area, left: i32, samples: &Samples, columns: bool, text: &TextStyle) -> Drawn {
    let text = text.pos(Pos::new(HPos::Left, VPos::Center));
    for (which, (series, pen)) in samples.series.iter().zip(Pen::all(&samples.series)).enumerate() {
        let y = TOP + LEGEND_LINE / 2 + which as i32 * LEGEND_LINE;
        if columns {
            let corners = [(left + 16, y - 6), (left + 28, y + 6)];
            root.draw(&Rectangle::new(corners, pen.colour.filled()))?;
        } else {
            path(root, &[(left, y), (left + 30, y)], &pen)?;
            symbol(root, (left + 15, y), &pen)?;
        }
        root.draw(&Text::new(series.name.clone(), (left + 38, y), text.clone()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Point, example};

    fn samples(x: Axis, y: Axis, points: &[(f64, &[f64])]) -> Samples {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: y.to_vec() }).collect();
        let series = vec![Series { name: "ours".into(), points }];
        Samples { title: "t".into(), x, y, series, drawn: true }
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
    fn whiskers_span_the_quartiles() {
        let (x, y) = linear();
        let samples = samples(x, y, &[(1.0, &[100.0, 0.0, 10.0])]);
        let marks = marks(&samples, &samples.series[0], &mut 0);
        assert_eq!((marks[0].lower, marks[0].median, marks[0].upper), (5.0, 10.0, 55.0));
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

    #[test]
    fn series_beyond_the_colours_have_other_symbols() {
        let one = |which: usize| {
            let mut svg = String::new();
            let root = SVGBackend::with_string(&mut svg, (20, 20)).into_drawing_area();
            symbol(&root, (10, 10), &Pen::of(which)).unwrap();
            drop(root);
            svg
        };
        let mut all: Vec<String> = (0..COLOURS.len() * SHAPES).map(one).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), COLOURS.len() * SHAPES);
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
    fn published_series_share_a_colour_and_are_hollow() {
        let series = |name: &str| Series { name: name.into(), points: Vec::new() };
        let pens = Pen::all(&["a", "2q/locked", "2q/locked, published"].map(series));
        assert!(pens[2].hollow && pens[2].dashed && !pens[1].hollow);
        assert_eq!(pens[2].colour, pens[1].colour);
        assert_ne!(pens[2].colour, pens[0].colour);
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
