//! Real servers and workers, broken by schedules from seeds, optimised:
//! `cargo xtask chaos --seeds 200 --at-once 6`.

use crate::ci::{Failed, cargo, install_redis, step};

pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    install_redis()?;
    let chaos = ["run", "--release", "--quiet", "-p", "paceline-chaos", "--"];
    step(cargo().args(chaos).args(words))
}
