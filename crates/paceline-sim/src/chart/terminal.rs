//! The chart for a terminal: five rows of blocks, an axis, and below it a mark under each column
//! that holds a 429, since one refused call among a thousand is no visible part of a bar.

use paceline_core::Micros;
use paceline_core::duration::Exact;

use super::short;
use crate::Report;

/// No line is longer.
const WIDTH: usize = 80;
const ROWS: usize = 5;
/// The space left of the columns: a count and the axis.
const MARGIN: usize = 7;
/// Columns from one time below the axis to the next.
const TIME_STEP: usize = 10;

/// What a chart is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Blocks in eighths of a row.
    Unicode,
    /// Plain ASCII.
    Ascii,
}

/// Draws the report's bins, in about eight lines of at most 80 columns.
#[must_use]
pub fn terminal(report: &Report, letters: Letters) -> String {
    let pen = Pen::of(letters);
    let together = report.bins.len().div_ceil(WIDTH - MARGIN).max(1);
    let columns: Vec<Column> = report.bins.chunks(together).map(Column::of).collect();
    let span_us = report.bin_us.saturating_mul(i64::try_from(together).unwrap_or(1));
    let scale = Scale::new(report.allowed_in(span_us), &columns);

    let mut lines = vec![format!(
        "calls in {}: {} passed, {} refused (429), {} what the quota allows: {}",
        Exact(span_us),
        pen.full(),
        pen.refused,
        pen.quota,
        short(scale.quota),
    )];
    for row in (0..ROWS).rev() {
        let label = if row == scale.quota_row { short(scale.quota) } else { String::new() };
        let cells: String = columns.iter().map(|column| pen.cell(column, row, &scale)).collect();
        lines.push(format!("{label:>5} {}{}", pen.side, cells.trim_end()));
    }
    lines.push(format!("{:>5} {}{}", 0, pen.corner, pen.floor.repeat(columns.len())));
    if report.refused > 0 {
        let marks: String = columns
            .iter()
            .map(|column| if column.refused > 0.0 { pen.mark } else { ' ' })
            .collect();
        lines.push(format!("{:>5}  {}", "429", marks.trim_end()));
    }
    lines.push(times(columns.len(), span_us));
    lines.join("\n")
}

/// The times below the axis, each beginning under its column.
fn times(columns: usize, span_us: Micros) -> String {
    let mut line = " ".repeat(MARGIN);
    for column in (0..columns).step_by(TIME_STEP) {
        let moment = Exact(span_us.saturating_mul(i64::try_from(column).unwrap_or(0))).to_string();
        let place = MARGIN + column;
        // One that would run into the one before, or over the edge, is left out.
        if place > line.trim_end().len() && place + moment.len() <= WIDTH {
            line.push_str(&" ".repeat(place.saturating_sub(line.len())));
            line.push_str(&moment);
        }
    }
    line
}

/// One or a few bins, drawn as one.
#[derive(Debug)]
struct Column {
    passed: f64,
    refused: f64,
}

impl Column {
    #[allow(clippy::cast_precision_loss, reason = "for reading, not for decisions")]
    fn of(bins: &[crate::Bin]) -> Self {
        let passed: u64 = bins.iter().map(|bin| bin.accepted).sum();
        let refused: u64 = bins.iter().map(|bin| bin.refused).sum();
        Self { passed: passed as f64, refused: refused as f64 }
    }
}

/// How many calls a row is. What the quota allows lies on the edge of a row wherever that leaves
/// room for the rest, so that its line is drawn where it belongs.
#[derive(Debug)]
struct Scale {
    quota: f64,
    per_row: f64,
    /// The row whose lower edge is the quota: its line is drawn there, above what fills it.
    quota_row: usize,
}

impl Scale {
    #[allow(clippy::cast_precision_loss, reason = "a handful of rows")]
    fn new(quota: f64, columns: &[Column]) -> Self {
        let most = columns.iter().map(|column| column.passed + column.refused).fold(0.0, f64::max);
        for quota_row in (1..ROWS).rev() {
            let per_row = quota / quota_row as f64;
            if per_row * ROWS as f64 >= most {
                return Self { quota, per_row, quota_row };
            }
        }
        Self { quota, per_row: most / ROWS as f64, quota_row: 0 }
    }
}

/// The letters themselves.
#[derive(Debug)]
struct Pen {
    /// Parts of a block that passed calls fill, from the least to the whole.
    parts: &'static [char],
    refused: char,
    quota: char,
    side: char,
    corner: char,
    floor: &'static str,
    mark: char,
}

impl Pen {
    fn of(letters: Letters) -> Self {
        match letters {
            Letters::Unicode => Self {
                parts: &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
                refused: '░',
                quota: '╌',
                side: '│',
                corner: '└',
                floor: "─",
                mark: '×',
            },
            Letters::Ascii => Self {
                parts: &['.', '#'],
                refused: 'x',
                quota: '-',
                side: '|',
                corner: '+',
                floor: "-",
                mark: '!',
            },
        }
    }

    fn full(&self) -> char {
        self.parts.last().copied().unwrap_or('#')
    }

    /// What one column shows in one row.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a row, between none and all of it"
    )]
    fn cell(&self, column: &Column, row: usize, scale: &Scale) -> char {
        let filled = |calls: f64| (calls / scale.per_row - row as f64).clamp(0.0, 1.0);
        let (passed, all) = (filled(column.passed), filled(column.passed + column.refused));
        // The larger part of the cell decides what it shows.
        if passed < 0.5 && all >= 0.5 {
            return self.refused;
        }
        let parts = (passed * self.parts.len() as f64).round() as usize;
        // A column with any call is seen to have one.
        let parts = if row == 0 && column.passed > 0.0 { parts.max(1) } else { parts };
        match self.parts.get(parts.wrapping_sub(1)) {
            Some(part) => *part,
            None if row == scale.quota_row => self.quota,
            None => ' ',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::testing::report;

    #[test]
    fn a_full_quota_ends_at_its_line() {
        let chart = terminal(
            &report("50/s", |second| (if second < 30 { 50 } else { 25 }, 0)),
            Letters::Unicode,
        );
        let (full, half) = ("█".repeat(30), "█".repeat(60));
        let line = "╌".repeat(60);
        let expected = [
            "calls in 1s: █ passed, ░ refused (429), ╌ what the quota allows: 50".to_owned(),
            format!("   50 │{line}"),
            format!("      │{full}"),
            format!("      │{full}"),
            format!("      │{half}"),
            format!("      │{half}"),
            format!("    0 └{}", "─".repeat(60)),
            "       0s        10s       20s       30s       40s       50s".to_owned(),
        ];
        assert_eq!(chart.lines().collect::<Vec<_>>(), expected, "{chart}");
    }

    #[test]
    fn what_is_refused_stands_on_top_and_is_marked_below() {
        let burst = report("50/s", |second| if second == 5 { (50, 50) } else { (50, 0) });
        let chart = terminal(&burst, Letters::Ascii);
        let lines: Vec<_> = chart.lines().collect();
        let full = |n| "#".repeat(n);
        assert_eq!(lines[1], "      |", "{chart}");
        assert_eq!(lines[2], "      |     x");
        assert_eq!(lines[3], format!("   50 |-----x{}", "-".repeat(54)));
        assert_eq!(lines[4], format!("      |{}", full(60)));
        assert_eq!(lines[7], "  429       !");
        assert!(chart.is_ascii());
    }

    #[test]
    fn a_single_429_among_many_calls_is_seen() {
        let one = report("50/s", |second| (50, u64::from(second == 59)));
        let chart = terminal(&one, Letters::Unicode);
        let marks = format!("  429{}×", " ".repeat(2 + 59));
        assert_eq!(chart.lines().rev().nth(1), Some(marks.as_str()), "{chart}");
        // And a single call that passed.
        let one = report("50/s", |second| (u64::from(second == 3), 0));
        assert!(terminal(&one, Letters::Unicode).contains("│   ▁"));
        assert!(terminal(&one, Letters::Ascii).contains("|   ."));
    }

    #[test]
    fn no_line_is_wider_than_eighty_columns_and_there_are_at_most_nine() {
        for seconds in [1, 7, 60, 61, 119, 600, 86_400, 300 * 86_400] {
            for (calls, limit) in [(0, 1), (1, 1), (3, 1_000_000_000), (4_000, 1)] {
                let mut report = report("50/s", |_| (calls / 2, calls - calls / 2));
                report.limit = limit;
                report.bin_us = seconds * 1_000_000 / 60;
                // More bins than a run has by itself.
                let more = report.bins.clone();
                report.bins.extend(more);
                for letters in [Letters::Unicode, Letters::Ascii] {
                    let chart = terminal(&report, letters);
                    assert!(chart.lines().all(|line| line.chars().count() <= 80), "{chart}");
                    assert!(chart.lines().count() <= 9, "{chart}");
                }
            }
        }
    }
}
