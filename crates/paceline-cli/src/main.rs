//! `paceline`: hold one pace for calls to third-party APIs, from shell scripts and for operators.
//! A short `main` over [`run`]; data goes to stdout, words to stderr.

mod command;
mod demo;
mod exit;
mod number;
mod output;
mod permit;
mod provider;
mod run;
mod signal;
mod store;

fn main() -> std::process::ExitCode {
    run::run()
}
