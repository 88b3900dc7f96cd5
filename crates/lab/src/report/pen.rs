//! How a series is drawn: colour, symbol and line.
//!
//! The drawing uses the colours of a light page. The page's style ([`style`]) maps them to dark
//! ones, so the drawing needs no knowledge of the colour scheme.

use crate::result::Series;
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Half the size of a point's symbol.
pub const POINT: i32 = 4;
const DASH: i32 = 7;
const GAP: i32 = 4;

pub const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
pub const GRID: RGBColor = RGBColor(0xd5, 0xda, 0xe0);

/// Colours of the series on a light and on a dark page. They are distinguishable to colour-blind
/// readers (after Okabe and Ito). Further series reuse the colours with dashed lines and other
/// symbols.
pub const COLOURS: [(RGBColor, &str); 8] = [
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

/// How a series is drawn.
#[derive(Clone, Copy)]
pub struct Pen {
    pub colour: RGBColor,
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
    pub fn all(series: &[Series]) -> Vec<Self> {
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

/// Draws a line, dashed for some pens.
pub fn path(root: &Area, line: &[(i32, i32)], pen: &Pen) -> Drawn {
    let style = pen.colour.stroke_width(2);
    if !pen.dashed {
        return root.draw(&PathElement::new(line, style));
    }
    root.draw(&DashedPathElement::new(line.iter().copied(), DASH, GAP, style))
}

/// Draws a cross.
pub fn cross(root: &Area, at: (i32, i32), colour: &RGBColor) -> Drawn {
    let corner = |x: i32, y: i32| (at.0 + x * (POINT + 1), at.1 + y * (POINT + 1));
    for ends in [[corner(-1, -1), corner(1, 1)], [corner(-1, 1), corner(1, -1)]] {
        root.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
    }
    Ok(())
}

/// Draws the symbol of a pen.
pub fn symbol(root: &Area, at: (i32, i32), pen: &Pen) -> Drawn {
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn published_series_share_a_colour_and_are_hollow() {
        let series = |name: &str| Series { name: name.into(), points: Vec::new() };
        let pens = Pen::all(&["a", "2q/locked", "2q/locked, published"].map(series));
        assert!(pens[2].hollow && pens[2].dashed && !pens[1].hollow);
        assert_eq!(pens[2].colour, pens[1].colour);
        assert_ne!(pens[2].colour, pens[0].colour);
    }
}
