//! Paceline's chores. `cargo xtask ci` is all that a change has to pass, on a bare machine with
//! Rust and nothing else as in the workflow; `cargo xtask` alone prints the list.

mod chaos;
mod ci;
mod fuzz;
mod soak;

use std::io::Write;
use std::process::ExitCode;

use ci::Failed;

const USAGE: &str = "\
cargo xtask <chore>

  ci     install redis-server if it is missing; then check format, lints, docs, licences and tests
  soak   simulate random fleets: --seeds N of them (1000), --from SEED on (0)
  chaos  break real servers and workers: --seeds N schedules (6), --from SEED on (0),
         --at-once N of them (3)
  fuzz   throw mutated answers at the readers of headers: for --seconds N (10), --from SEED on (0)
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["ci"] => ended(ci::run()),
        ["soak", ref words @ ..] => ended(soak::run(words)),
        ["fuzz", ref words @ ..] => ended(fuzz::run(words)),
        ["chaos", ref words @ ..] => ended(chaos::run(words)),
        [] | ["help" | "-h" | "--help"] => {
            // Nobody is left to tell when this fails.
            let _ = std::io::stdout().write_all(USAGE.as_bytes());
            ExitCode::SUCCESS
        }
        _ => {
            say(&format!("no such chore: {}\n\n{USAGE}", words.join(" ")));
            ExitCode::from(2)
        }
    }
}

fn ended(chore: Result<(), Failed>) -> ExitCode {
    match chore {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(code)) => ExitCode::from(code),
    }
}

/// Words go to stderr; stdout is for the tests' own lines and the count of them.
pub(crate) fn say(words: &str) {
    let _ = writeln!(std::io::stderr(), "xtask: {words}");
}
