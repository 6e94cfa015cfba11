//! The chart as an SVG: a file of its own, with its style inside, readable on light and on dark.

use std::fmt::{self, Write};

use paceline_core::duration::Exact;

use super::short;
use crate::Report;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 320.0;
/// The plot's edges.
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 80.0;
const BOTTOM: f64 = HEIGHT - 36.0;
/// More letters of a policy than these do not fit beside the provider.
const TITLE_MAX: usize = 96;

/// Plain colours first, for viewers that know neither variables nor dark pages.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#59636e}.title{font-size:14px;font-weight:600;fill:#1f2328}\
.paper{fill:#fff}.passed{fill:#2f6fab}.refused{fill:#c6222c}\
.grid{stroke:#d1d9e0}.axis{stroke:#59636e}\
.quota{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:6 4}\
@media (prefers-color-scheme:dark){text{fill:#9198a1}.title{fill:#e6edf3}\
.paper{fill:#0d1117}.passed{fill:#58a6ff}.refused{fill:#ff7b72}\
.grid{stroke:#3d444d}.axis{stroke:#9198a1}.quota{stroke:#e3b341}}";

/// Draws the report's bins as an SVG document.
#[must_use]
pub fn svg(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = draw(report, &mut out);
    out
}

#[allow(clippy::cast_precision_loss, reason = "for reading, not for decisions")]
fn draw(report: &Report, out: &mut String) -> fmt::Result {
    let title = format!("{} before {}", report.policy, report.provider);
    let sum = format!(
        "{} calls, {} refused with 429, {:.1} % of the quota used",
        report.calls,
        report.refused,
        report.share * 100.0
    );
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\">"
    )?;
    writeln!(out, "<title>{}: {sum}</title>", Escaped(&title))?;
    writeln!(out, "<style>{STYLE}</style>")?;
    writeln!(out, "<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>")?;
    let shown = if title.chars().count() > TITLE_MAX {
        title.chars().take(TITLE_MAX - 1).chain(['…']).collect()
    } else {
        title
    };
    writeln!(out, "<text class=\"title\" x=\"16\" y=\"24\">{}</text>", Escaped(&shown))?;
    writeln!(out, "<text x=\"16\" y=\"44\">{sum}</text>")?;
    legend(report, out)?;

    let quota = report.allowed_in(report.bin_us);
    let most = report.bins.iter().map(|bin| bin.accepted + bin.refused).max().unwrap_or(0) as f64;
    let step = round_step(most.max(quota) / 4.0);
    let top = (most.max(quota) * 1.05 / step).ceil() * step;
    let y = |calls: f64| BOTTOM - calls / top * (BOTTOM - TOP);
    let mut line = 0.0;
    while line <= top {
        let (class, y) = (if line > 0.0 { "grid" } else { "axis" }, y(line));
        writeln!(
            out,
            "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            short(line)
        )?;
        line += step;
    }

    let wide = (RIGHT - LEFT) / report.bins.len().max(1) as f64;
    for (index, bin) in report.bins.iter().enumerate() {
        let x = LEFT + index as f64 * wide;
        let moment = Exact(bin.from_us);
        if index % 10 == 0 {
            writeln!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{BOTTOM}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\">{moment}</text>",
                BOTTOM + 5.0,
                BOTTOM + 20.0
            )?;
        }
        if bin.accepted + bin.refused == 0 {
            continue;
        }
        writeln!(
            out,
            "<g><title>from {moment}: {} passed, {} refused</title>",
            bin.accepted, bin.refused
        )?;
        let (passed, all) = (bin.accepted as f64, (bin.accepted + bin.refused) as f64);
        for (class, from, to) in [("passed", 0.0, passed), ("refused", passed, all)] {
            if to > from {
                // A refused call among thousands is still a line of two pixels.
                let high = (y(from) - y(to)).max(2.0);
                writeln!(
                    out,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{high:.1}\"/>",
                    y(from) - high,
                    wide * 0.85
                )?;
            }
        }
        writeln!(out, "</g>")?;
    }
    let y = y(quota);
    writeln!(
        out,
        "<line class=\"quota\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>"
    )?;
    writeln!(out, "</svg>")
}

/// What the colours and the lines mean, from the right.
fn legend(report: &Report, out: &mut String) -> fmt::Result {
    let y = 64.0;
    let span = Exact(report.bin_us);
    for (x, class, words) in [
        (LEFT, "passed", format!("passed in {span}")),
        (LEFT + 150.0, "refused", "refused (429)".to_owned()),
    ] {
        writeln!(
            out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{words}</text>",
            y - 9.0,
            x + 16.0
        )?;
    }
    let (x, middle) = (LEFT + 290.0, y - 4.0);
    let allowed = short(report.allowed_in(report.bin_us));
    writeln!(
        out,
        "<line class=\"quota\" x1=\"{x:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\"/>\
         <text x=\"{:.1}\" y=\"{y:.1}\">what the quota allows: {allowed}</text>",
        x + 24.0,
        x + 30.0
    )
}

/// The smallest of 1, 2 or 5 times a power of ten that is at least this, and at least one call.
fn round_step(least: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for step in [power, 2.0 * power, 5.0 * power] {
            if step >= least {
                return step;
            }
        }
        power *= 10.0;
    }
}

/// Text that is safe between tags: what XML gives a meaning is spelled out, and what it does not
/// allow at all is replaced.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&apos;")?,
                '\u{fffe}' | '\u{ffff}' => f.write_char('\u{fffd}')?,
                _ if letter.is_control() => f.write_char('\u{fffd}')?,
                _ => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::testing::report;

    /// Reads a document as strictly as XML wants it, in the parts of it that are used here; its
    /// elements with their attributes and the text right inside, in order.
    #[track_caller]
    fn elements(document: &str) -> Vec<(String, String, String)> {
        let mut elements: Vec<(String, String, String)> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        let mut rest = document.trim_end();
        while !rest.is_empty() {
            let Some(inside) = rest.strip_prefix('<') else {
                let (text, tail) = rest.split_at(rest.find('<').expect("text within the root"));
                let last = *open.last().expect("text within the root");
                elements[last].2.push_str(&unescaped(text));
                rest = tail;
                continue;
            };
            let (tag, tail) = inside.split_once('>').expect("a tag ends");
            rest = tail;
            if let Some(name) = tag.strip_prefix('/') {
                let ended = open.pop().expect("an end has a beginning");
                assert_eq!(elements[ended].0, name);
                assert!(!open.is_empty() || rest.is_empty(), "one root: {rest:?}");
                continue;
            }
            let (tag, empty) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
            assert!(name.bytes().all(|b| b.is_ascii_lowercase()), "{name:?}");
            let mut left = attributes;
            while !left.is_empty() {
                let (key, value) = left.split_once("=\"").expect("key=\"value\"");
                let (value, tail) = value.split_once('"').expect("a closing quote");
                assert!(!key.is_empty() && !value.contains('<'), "{attributes:?}");
                left = tail.trim_start();
            }
            if !empty {
                open.push(elements.len());
            }
            elements.push((name.to_owned(), attributes.to_owned(), String::new()));
        }
        assert!(open.is_empty(), "all tags end");
        elements
    }

    #[track_caller]
    fn unescaped(text: &str) -> String {
        let mut parts = text.split('&');
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, tail) = part.split_once(';').expect("an entity ends");
            out.push(match name {
                "lt" => '<',
                "gt" => '>',
                "amp" => '&',
                "quot" => '"',
                "apos" => '\'',
                _ => panic!("unknown entity {name:?}"),
            });
            out.push_str(tail);
        }
        assert!(out.chars().all(|letter| letter == '\n' || !letter.is_control()), "{out:?}");
        out
    }

    fn of_class<'a>(
        elements: &'a [(String, String, String)],
        name: &str,
        class: &str,
    ) -> Vec<&'a str> {
        let class = format!("class=\"{class}\"");
        let wanted = elements.iter().filter(|it| it.0 == name && it.1.contains(&class));
        wanted.map(|it| it.1.as_str()).collect()
    }

    #[test]
    fn it_is_well_formed_whatever_a_policy_is_called() {
        let mut report = report("50/s", |_| (50, 0));
        for policy in ["<&\"'>", "]]>", "</svg>", "&amp;", "\u{0}\u{1b}[31m\u{ffff}", "日本語"] {
            report.policy = policy.to_owned();
            let elements = elements(&svg(&report));
            let title = &elements.iter().find(|it| it.1.contains("title")).expect("a title").2;
            let shown: String = policy
                .chars()
                .map(|it| if it.is_control() || it == '\u{ffff}' { '\u{fffd}' } else { it })
                .collect();
            assert_eq!(title, &format!("{shown} before sliding 50/s"));
        }
        report.policy = "x".repeat(500);
        assert!(elements(&svg(&report)).iter().any(|it| it.2.ends_with('…')));
    }

    #[test]
    fn a_single_429_has_a_visible_bar_of_its_own_colour() {
        let document = svg(&report("50/s", |second| (50, u64::from(second == 7))));
        let elements = elements(&document);
        // One is the legend's.
        assert_eq!(of_class(&elements, "rect", "passed").len(), 61);
        let refused = of_class(&elements, "rect", "refused");
        assert_eq!(refused.len(), 2);
        let high = refused[1].split("height=\"").nth(1).and_then(|it| it.strip_suffix('"'));
        assert!(high.expect("a height").parse::<f64>().expect("a number") >= 2.0, "{refused:?}");
        assert_eq!(of_class(&elements, "line", "quota").len(), 2);
        assert!(document.contains("1 refused with 429"), "{document}");
        assert!(document.contains("from 7s: 50 passed, 1 refused"));
    }

    #[test]
    fn a_run_without_calls_and_a_quota_of_a_part_of_a_call_are_drawn() {
        let mut report = report("50/s", |_| (0, 0));
        for limit in [1, 1_000_000_000] {
            for interval_us in [1_000, 86_400_000_000] {
                (report.limit, report.interval_us) = (limit, interval_us);
                let document = svg(&report);
                assert!(!document.contains("NaN") && !document.contains("inf"), "{document}");
                elements(&document);
            }
        }
    }
}
