//! Draws curves as text: axes with labels, Braille dots, and a legend. Pure.

use corro_model::metrics::Point;

/// Size and abilities of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Canvas {
    pub columns: usize,
    pub rows: usize,
    /// Braille characters with 2x4 dots; otherwise one star per character.
    pub braille: bool,
    pub colour: bool,
}

pub struct Chart<'a> {
    pub title: String,
    pub axis: &'a str,
    /// Curves with their legends.
    pub curves: Vec<(String, &'a [Point])>,
}

/// Width of the labels left of the curves.
const LABEL_COLUMNS: usize = 11;
const COLOURS: [&str; 6] = ["36", "33", "35", "32", "34", "31"];

/// The chart as lines of text.
pub fn draw(chart: &Chart, canvas: Canvas) -> Vec<String> {
    let (columns, rows) = (canvas.columns.saturating_sub(LABEL_COLUMNS).max(8), canvas.rows.max(3));
    let all = || chart.curves.iter().flat_map(|(_, points)| points.iter()).filter(|point| point.value.is_finite());
    let mut lines = vec![chart.title.clone()];
    let (Some(x), Some(y)) = (range(all().map(|point| point.step)), range(all().map(|point| point.value))) else {
        lines.push("  no finite values".to_owned());
        return lines;
    };
    let (cell_columns, cell_rows) = if canvas.braille { (2, 4) } else { (1, 1) };
    let mut dots = DotGrid { columns, cell_columns, cell_rows, cells: vec![(0, 0); columns * rows] };
    for (idx, (_, points)) in chart.curves.iter().enumerate() {
        let mut last = None;
        for point in points.iter() {
            // NaN and infinite values leave a gap.
            let dot = point.value.is_finite().then(|| {
                let across = scale(point.step, x, columns * cell_columns);
                (across, rows * cell_rows - 1 - scale(point.value, y, rows * cell_rows))
            });
            match (last, dot) {
                (Some(from), Some(to)) => dots.line(from, to, idx),
                (None, Some(dot)) => dots.set(dot, idx),
                _ => {}
            }
            last = dot;
        }
    }
    for row in 0..rows {
        let label = match row {
            0 => format_number(y.1),
            row if row == rows - 1 => format_number(y.0),
            row if row == rows / 2 && rows % 2 == 1 && rows >= 7 => {
                format_number(y.1 - (y.1 - y.0) * row as f64 / (rows - 1) as f64)
            }
            _ => String::new(),
        };
        let edge = if label.is_empty() { '│' } else { '┤' };
        lines.push(format!("{label:>width$} {edge}{}", dots.row(row, canvas), width = LABEL_COLUMNS - 2));
    }
    lines.push(format!("{:>width$} └{}", "", "─".repeat(columns), width = LABEL_COLUMNS - 2));
    let (left, right) = (format_number(x.0), format!("{} {}", chart.axis, format_number(x.1)));
    let gap = columns.saturating_sub(left.chars().count() + right.chars().count());
    lines.push(format!("{:>LABEL_COLUMNS$}{left}{}{right}", "", " ".repeat(gap.max(1))));
    for (idx, (label, _)) in chart.curves.iter().enumerate() {
        lines.push(format!("  {} {label}", coloured("──", idx, canvas)));
    }
    lines
}

/// Grid of dots. A cell is one character; it has its dots and the curve that set one last.
struct DotGrid {
    columns: usize,
    cell_columns: usize,
    cell_rows: usize,
    cells: Vec<(u8, usize)>,
}

impl DotGrid {
    fn set(&mut self, (x, y): (usize, usize), curve: usize) {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        if let Some(cell) = self.cells.get_mut(y / self.cell_rows * self.columns + x / self.cell_columns) {
            *cell = (cell.0 | BITS[y % self.cell_rows][x % self.cell_columns], curve);
        }
    }

    fn line(&mut self, from: (usize, usize), to: (usize, usize), curve: usize) {
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        let between = |a: usize, b: usize, k: usize| {
            (a as f64 + (b as f64 - a as f64) * k as f64 / steps as f64).round() as usize
        };
        for k in 0..=steps {
            self.set((between(from.0, to.0, k), between(from.1, to.1, k)), curve);
        }
    }

    fn row(&self, row: usize, canvas: Canvas) -> String {
        let cells = &self.cells[row * self.columns..(row + 1) * self.columns];
        let mut text = String::new();
        for group in cells.chunk_by(|a, b| (a.0 == 0) == (b.0 == 0) && (a.0 == 0 || a.1 == b.1)) {
            let glyph = |(dots, _): &(u8, usize)| match (*dots, canvas.braille) {
                (0, _) => ' ',
                (dots, true) => char::from_u32(0x2800 + u32::from(dots)).unwrap_or('*'),
                (_, false) => '*',
            };
            let glyphs: String = group.iter().map(glyph).collect();
            text += &if group[0].0 == 0 { glyphs } else { coloured(&glyphs, group[0].1, canvas) };
        }
        text.trim_end().to_owned()
    }
}

fn coloured(text: &str, curve: usize, canvas: Canvas) -> String {
    match canvas.colour {
        true => format!("\x1b[{}m{text}\x1b[0m", COLOURS[curve % COLOURS.len()]),
        false => text.to_owned(),
    }
}

/// Lowest and highest value, widened if they are equal. `None` without values.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, cell_rows) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, cell_rows), v| (low.min(v), cell_rows.max(v)));
    match low.partial_cmp(&cell_rows)? {
        std::cmp::Ordering::Less => Some((low, cell_rows)),
        std::cmp::Ordering::Equal => Some((low - 0.5, cell_rows + 0.5)),
        std::cmp::Ordering::Greater => None,
    }
}

fn scale(value: f64, (low, cell_rows): (f64, f64), size: usize) -> usize {
    // Halved first: the difference of two large values could overflow.
    let share = (value / 2.0 - low / 2.0) / (cell_rows / 2.0 - low / 2.0);
    ((share * (size - 1) as f64).round() as usize).min(size - 1)
}

/// A short representation with four significant digits or so.
pub fn format_number(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => value.to_string(),
        0.0 => "0".to_owned(),
        size if !(1e-3..1e6).contains(&size) => format!("{value:.2e}"),
        size if size >= 1000.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(step: f64, value: f64) -> Point {
        Point { step, time: None, value }
    }

    #[test]
    fn a_curve_is_drawn_between_its_axes() {
        let falling: Vec<Point> = (0..=8).map(|step| at(f64::from(step), f64::from(8 - step))).collect();
        let chart = Chart { title: "loss".into(), axis: "step", curves: vec![("last 0".into(), &falling)] };
        let canvas = Canvas { columns: 20, rows: 9, braille: false, colour: false };
        let expected = [
            "loss",
            "        8 ┤*",
            "          │ *",
            "          │  *",
            "          │   *",
            "        4 ┤    *",
            "          │     *",
            "          │      *",
            "          │       *",
            "        0 ┤        *",
            "          └─────────",
            "           0  step 8",
            "  ── last 0",
        ];
        assert_eq!(draw(&chart, canvas), expected);
        let braille = draw(&chart, Canvas { rows: 3, braille: true, ..canvas });
        assert_eq!(braille[1], "        8 ┤⠑⠢⡀");
        let colour = draw(&chart, Canvas { rows: 3, colour: true, ..canvas });
        assert!(colour[1].contains("\x1b[36m"), "{colour:?}");
    }

    #[test]
    fn odd_curves_are_no_trouble() {
        for (points, narrow) in [
            (vec![], 0),
            (vec![at(1.0, f64::NAN)], 5),
            (vec![at(1.0, 1.0)], 10),
            (vec![at(1.0, 1.0), at(2.0, f64::NAN), at(3.0, 1.0)], 200),
            (vec![at(-1e308, f64::MAX), at(1e308, f64::MIN), at(1e308, f64::INFINITY)], 40),
        ] {
            let chart = Chart { title: "x".into(), axis: "step", curves: vec![("l".into(), &points)] };
            for braille in [true, false] {
                draw(&chart, Canvas { columns: narrow, rows: 0, braille, colour: false });
            }
        }
    }

    #[test]
    fn figures_are_short() {
        let cases = [(0.0, "0"), (2.5, "2.5000"), (50.0, "50"), (12.345, "12.35"), (1234.5, "1234"), (1e-5, "1.00e-5")];
        for (value, expected) in cases {
            assert_eq!(format_number(value), expected);
        }
    }
}
