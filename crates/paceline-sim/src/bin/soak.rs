//! Runs many seeds: `soak --seeds N [--from SEED]`. Ends with 1 at the first that fails.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let at = words.iter().position(|word| word == name);
        match at.map(|at| words.get(at + 1).and_then(|word| word.parse().ok())) {
            None => Some(otherwise),
            Some(number) => number,
        }
    };
    let (Some(seeds), Some(from)) = (number("--seeds", 1_000), number("--from", 0)) else {
        eprintln!("usage: soak [--seeds N] [--from SEED], both whole numbers");
        return ExitCode::from(2);
    };
    let (mut calls, mut refused, mut simulated_us) = (0, 0, 0);
    for seed in from..from.saturating_add(seeds) {
        match paceline_sim::soak::soak(seed) {
            Ok(report) => {
                calls += report.calls;
                refused += report.refused;
                simulated_us += report.simulated_us;
            }
            Err(error) => {
                if let Ok((scenario, _)) = paceline_sim::soak::scenario(seed) {
                    eprintln!("{scenario:#?}");
                }
                eprintln!("{error}\nagain: cargo xtask soak --from {seed} --seeds 1");
                return ExitCode::FAILURE;
            }
        }
    }
    let hours = simulated_us / 3_600_000_000;
    println!(
        "{seeds} seeds, {hours} simulated hours, {calls} calls, {refused} refused where nothing was promised"
    );
    ExitCode::SUCCESS
}
