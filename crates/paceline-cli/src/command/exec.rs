//! `paceline exec`: waits for a permit, then becomes the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use clap::Args;
use paceline::Answer;

use crate::exit::{Exit, Failure};
use crate::permit::{self, PermitArgs};
use crate::run::Context;
use crate::signal;

/// Wait for a permit, then become the command.
///
/// For cron, xargs and make:
///
///   paceline exec github --quota 50/s -- curl -s https://api.github.com/zen
///   xargs -P8 -n1 paceline exec github --quota 50/s -- curl -sO < urls
///
/// Ends with the command's own code. A command that is not there costs no permit. With --json a
/// refusal is printed as by `acquire`; what the command prints is its own.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Exec {
    #[command(flatten)]
    permit: PermitArgs,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::new(Exit::USAGE, "no command"));
        };
        runnable(Path::new(program))?;
        let limiter = context.store.open().await?;
        let bucket = self.permit.bucket(&limiter)?;
        let permit = async {
            match permit::wait(&bucket, self.permit.cost, self.permit.max_wait).await? {
                Answer::Granted(permit) => Ok(permit),
                Answer::Refused(refusal) => {
                    // Stdout is the command's, but there will be none.
                    if context.json {
                        permit::print_refused(1, &refusal);
                    }
                    Err(refusal.into())
                }
            }
        };
        signal::or_interrupted(&limiter, permit).await?.spend();
        // Comes back only where it fails.
        Err(cannot(program, &Command::new(program).args(arguments).exec()))
    }
}

/// Looks for the program as the system will, so that a slip of the pen costs no permit.
fn runnable(program: &Path) -> Result<(), Failure> {
    let is_there = if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        program.is_file().then(|| program.to_owned())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(program));
        found.into_iter().find(|file| is_executable(file))
    };
    match is_there {
        Some(file) if is_executable(&file) => Ok(()),
        Some(_) => Err(Failure::new(
            Exit::CANNOT_RUN,
            format!("cannot run {program:?}: it is not executable; no permit was taken"),
        )),
        None => Err(Failure::new(
            Exit::NO_COMMAND,
            format!("cannot run {program:?}: there is no such command; no permit was taken"),
        )),
    }
}

fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}

fn cannot(program: &std::ffi::OsStr, error: &std::io::Error) -> Failure {
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NO_COMMAND,
        _ => Exit::CANNOT_RUN,
    };
    Failure::new(exit, format!("cannot run {program:?}: {error}"))
}
