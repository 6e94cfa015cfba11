//! Many random fleets in virtual time, optimised: `cargo xtask soak --seeds 100000`.

use crate::ci::{Failed, cargo, step};

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let soak = ["run", "--release", "--quiet", "-p", "paceline-sim", "--bin", "soak", "--"];
    step(cargo().args(soak).args(words))
}
