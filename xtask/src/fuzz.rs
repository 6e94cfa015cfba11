//! Mutated answers thrown at the readers of headers, optimised: `cargo xtask fuzz --seconds 600`.

use crate::ci::{Failed, cargo, step};

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let fuzz = ["run", "--release", "--quiet", "-p", "paceline-http", "--features", "fuzz"];
    // A sum that wraps is a finding, too.
    let mut cargo = cargo();
    cargo.env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true");
    step(cargo.args(fuzz).args(["--bin", "fuzz", "--"]).args(words))
}
