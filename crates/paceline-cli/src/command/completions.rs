//! `paceline completions`: what a shell needs to complete commands and flags.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::run::Cli;

/// Print a shell's completions.
///
///   paceline completions bash > /etc/bash_completion.d/paceline
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "paceline", &mut script);
        output::bytes(&script)?;
        Ok(Exit::DONE)
    }
}
