//! The legend of a chart: the names of its series, and what a cross means.

use super::pen::{self, Area, Drawn, Pen};
use crate::result::Samples;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The legend is as wide as its longest name, at about this many pixels a letter.
const LETTER_WIDTH: i32 = 8;
const MIN_WIDTH: i32 = 110;
/// Space for the symbols and the margins.
const SYMBOLS: i32 = 64;
const LINE: i32 = 22;

/// The lines of a legend.
pub struct Legend {
    /// A name for each series.
    names: Vec<String>,
    /// What crosses mean, if there are any.
    crosses: Option<String>,
}

impl Legend {
    /// Creates the legend. What ends all names and is in the title is left out.
    pub fn of(samples: &Samples) -> Self {
        let name = |name: &String| name.rsplit_once(", ").map(|(_, end)| end.to_owned());
        let mut names: Vec<String> =
            samples.series.iter().map(|series| series.name.clone()).collect();
        if let Some(Some(end)) = names.first().map(name)
            && samples.title.contains(&end)
            && names.iter().all(|name| name.ends_with(&format!(", {end}")))
        {
            names.iter_mut().for_each(|name| name.truncate(name.len() - ", ".len() - end.len()));
        }
        let has_cross = |at: &(String, f64)| samples.series.iter().any(|s| s.name == at.0);
        let marked = samples.marked.as_ref().filter(|marked| marked.points.iter().any(has_cross));
        Self { names, crosses: marked.map(|marked| marked.what.clone()) }
    }

    fn lines(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(&self.crosses)
    }

    /// Returns its width, in pixels.
    pub fn width(&self) -> i32 {
        let longest = self.lines().map(|line| line.chars().count()).max().unwrap_or(0) as i32;
        (longest * LETTER_WIDTH + SYMBOLS).max(MIN_WIDTH)
    }

    /// Returns its height, in pixels.
    pub fn height(&self) -> i32 {
        LINE * self.lines().count() as i32
    }

    /// Draws it, with rectangles if the series are columns.
    pub fn draw(
        &self,
        root: &Area,
        (left, top): (i32, i32),
        pens: &[Pen],
        columns: bool,
        text: &TextStyle,
    ) -> Drawn {
        let text = text.pos(Pos::new(HPos::Left, VPos::Center));
        for (which, name) in self.lines().enumerate() {
            let y = top + LINE / 2 + which as i32 * LINE;
            match pens.get(which) {
                Some(pen) if columns => {
                    let corners = [(left + 16, y - 6), (left + 28, y + 6)];
                    root.draw(&Rectangle::new(corners, pen.colour.filled()))?;
                }
                Some(pen) => {
                    pen::path(root, &[(left, y), (left + 30, y)], pen)?;
                    pen::symbol(root, (left + 15, y), pen)?;
                }
                None => pen::cross(root, (left + 15, y), &pen::INK)?,
            }
            root.draw(&Text::new(name.clone(), (left + 38, y), text.clone()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Marked, Series};

    fn legend(title: &str, names: &[&str], marked: Option<Marked>) -> Legend {
        let series =
            names.iter().map(|name| Series { name: (*name).into(), points: Vec::new() }).collect();
        let (x, y) = (Axis::linear("", ""), Axis::linear("", ""));
        Legend::of(&Samples { title: title.into(), x, y, series, drawn: true, marked })
    }

    #[test]
    fn a_common_end_of_all_names_is_left_out() {
        let names = ["blocking, driver (ii)", "locking, all conflict, driver (ii)"];
        let of = |title, names: &[&str]| legend(title, names, None).names;
        assert_eq!(of("Conflicts, driver (ii)", &names), ["blocking", "locking, all conflict"]);
        assert_eq!(of("Conflicts", &names), names);
        let other = ["blocking, driver (ii)", "blocking, model"];
        assert_eq!(of("driver (ii), model", &other), other);
    }

    #[test]
    fn legends_have_room_for_the_longest_line() {
        let long = "a".repeat(60);
        let legend = legend("t", &["b", &long], None);
        assert!(legend.width() >= 60 * LETTER_WIDTH, "{}", legend.width());
    }

    #[test]
    fn crosses_are_explained_if_there_are_any() {
        let marked = |name: &str| {
            let points = vec![(name.to_owned(), 1.0)];
            Some(Marked { what: "fitted".into(), points })
        };
        assert_eq!(legend("t", &["a"], marked("a")).crosses.as_deref(), Some("fitted"));
        assert_eq!(legend("t", &["a"], marked("b")).crosses, None);
    }
}
