//! Breaks things while real worker processes call a real strict provider through real servers, by
//! a schedule that a seed makes, and says what came of it: `chaos [--seeds N] [--from SEED]
//! [--at-once N]`. Ends with 1 where a window went over its stated bound, somebody hung, or a
//! wake-up was lost.
//!
//! [`plan`] says what happens, [`stage`] has the servers and breaks them, [`worker`] is the program
//! under test, [`provider`] counts, [`verdict`] judges, [`run`] brings them together.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::expect_used,
    reason = "a program for the terminal that fails loudly"
)]

mod plan;
mod provider;
mod run;
mod stage;
mod verdict;
mod worker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use verdict::Total;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &words[..]
        && first == worker::WORD
    {
        worker::main(rest);
        return ExitCode::SUCCESS;
    }
    let number = |name: &str, otherwise: u64| {
        let at = words.iter().position(|word| word == name);
        match at.map(|at| words.get(at + 1).and_then(|word| word.parse().ok())) {
            None => Some(otherwise),
            Some(number) => number,
        }
    };
    let (Some(seeds), Some(from), Some(at_once)) =
        (number("--seeds", 6), number("--from", 0), number("--at-once", 3))
    else {
        eprintln!("usage: chaos [--seeds N] [--from SEED] [--at-once N], all whole numbers");
        return ExitCode::from(2);
    };
    let next = AtomicU64::new(from);
    let end = from.saturating_add(seeds);
    let total = Mutex::new(Total::default());
    std::thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, 64) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let verdict = std::panic::catch_unwind(|| run::run(seed));
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match verdict {
                        Ok(verdict) => {
                            println!("{verdict}");
                            total.add(&verdict);
                        }
                        Err(_) => {
                            println!(
                                "seed {seed}: VOID, its servers did not do what they were to\n"
                            );
                            total.void();
                        }
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{total}");
    if total.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
