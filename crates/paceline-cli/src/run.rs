//! From arguments to an exit code.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::command::Command;
use crate::exit::{self, Exit, Failure};
use crate::output;
use crate::store::StoreArgs;

/// Hold one pace for calls to third-party APIs, across all processes and machines.
#[derive(Debug, Parser)]
#[command(name = "paceline", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    store: StoreArgs,

    /// Print JSON: one value a line, times in whole microseconds
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,

    /// Say more on stderr; twice for all there is
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "Output")]
    verbose: u8,
}

/// What a command gets besides its own arguments.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: StoreArgs,
    pub(crate) json: bool,
}

pub(crate) fn run() -> ExitCode {
    let Cli { command, store, json, verbose } = Cli::parse();
    tell(verbose);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::say(&format!("cannot start: {error}"));
            return Exit::IO.into();
        }
    };
    let result = runtime.block_on(command.run(&Context { store, json }));
    // A read of stdin that nobody waits for any more must not hold the process.
    runtime.shutdown_timeout(Duration::ZERO);
    match result {
        Ok(exit) => exit.into(),
        Err(Failure { exit, words }) => {
            if !words.is_empty() {
                output::say(&words);
            }
            exit.into()
        }
    }
}

/// Lets the library say on stderr what it notices. What goes wrong with Redis is told by the command
/// that needed it; more only where asked for.
fn tell(verbose: u8) {
    let levels = match verbose {
        0 => Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("paceline::store::redis", LevelFilter::OFF),
        1 => Targets::new().with_default(LevelFilter::INFO),
        _ => Targets::new().with_default(LevelFilter::DEBUG),
    };
    let words = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time();
    tracing_subscriber::registry().with(words.with_filter(levels)).init();
}
