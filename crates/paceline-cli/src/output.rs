//! Data on stdout, words on stderr. A reader that goes away ends the run quietly.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// Prints one line of data and flushes it.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    bytes(format!("{text}\n").as_bytes())
}

/// Prints one JSON value as a line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::new(Exit::IO, format!("cannot write JSON: {error}")))?;
    line(&text)
}

/// Prints bytes as they are and flushes them.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::quiet(Exit::DONE),
        _ => Failure::new(Exit::IO, format!("cannot write to stdout: {error}")),
    })
}

/// Says something to the person. Where stderr is closed there is nobody to say it to.
pub(crate) fn say(words: &str) {
    let _ = writeln!(io::stderr().lock(), "paceline: {words}");
}

/// Says that a command made the bucket it was to change, which a name that is misspelled does, too.
pub(crate) fn say_begun(bucket: &str) {
    say(&format!(
        "there was no bucket {bucket:?}; it begins with this. Where the name was a slip of the pen, \
         `paceline delete` undoes it and `paceline list` tells which there are"
    ));
}

/// Whole microseconds, as all times in JSON are.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A span as a person reads it: `1d 4h`, `2m 5s`, `3.2s`, `250ms`, `40us`.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |big: u64, unit: &str, small: u64, below: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit} {small}{below}"),
    };
    match seconds {
        86_400.. => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
        3_600.. => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        60.. => two(seconds / 60, "m", seconds % 60, "s"),
        1.. => {
            let tenths = span.subsec_millis() / 100;
            if tenths == 0 { format!("{seconds}s") } else { format!("{seconds}.{tenths}s") }
        }
        0 if span.as_micros() >= 1_000 => format!("{}ms", span.as_millis()),
        0 => format!("{}us", span.as_micros()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_its_two_largest_units() {
        for (micros, told) in [
            (0, "0us"),
            (40, "40us"),
            (250_900, "250ms"),
            (3_000_000, "3s"),
            (3_290_000, "3.2s"),
            (125_000_000, "2m 5s"),
            (7_200_000_000, "2h"),
            (100_800_000_000, "1d 4h"),
        ] {
            assert_eq!(span(Duration::from_micros(micros)), told);
        }
    }
}
