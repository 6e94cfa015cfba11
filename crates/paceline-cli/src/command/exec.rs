//! `paceline exec`: waits for a permit, then becomes the command.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use clap::Args;
use paceline::Answer;
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::SignalKind;

use crate::exit::{Exit, Failure};
use crate::number::whole;
use crate::output;
use crate::permit::{self, PermitArgs};
use crate::run::Context;
use crate::signal;
use crate::store::span_from;

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

    /// Suspend the bucket for the whole fleet where the command ends with this code, such as 75=30s;
    /// may be given many times, once for each code. A command that a signal ended has the code 128 and
    /// the signal's number, as in a shell: 143 for SIGTERM. The command then runs under this process
    /// instead of in its place. At the end of such a suspension one command goes first, and the others
    /// follow when it has ended otherwise
    #[arg(long, value_name = "CODE=SPAN", value_parser = suspend_on)]
    suspend_on: Vec<(u8, Duration)>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Exec {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::new(Exit::USAGE, "no command"));
        };
        for (index, (code, _)) in self.suspend_on.iter().enumerate() {
            if self.suspend_on[..index].iter().any(|(before, _)| before == code) {
                let words = format!("--suspend-on {code}=…: the code {code} is given twice");
                return Err(Failure::new(Exit::USAGE, words));
            }
        }
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
        let permit = signal::or_interrupted(&limiter, permit).await?;
        let mut command = Command::new(program);
        command.args(arguments);
        if self.suspend_on.is_empty() {
            permit.spend();
            // Comes back only where it fails.
            return Err(cannot(program, &command.exec()));
        }
        let call = permit.in_flight();
        let ended = run_to_end(command).await.map_err(|error| cannot(program, &error))??;
        let (code, exit) = match ended.code() {
            Some(code) => {
                let code = u8::try_from(code).unwrap_or(u8::MAX);
                (code, Exit::of_command(code))
            }
            None => {
                let signal = u8::try_from(ended.signal().unwrap_or(0)).unwrap_or(0);
                (signal.saturating_add(128), Exit::by_signal(signal.into()))
            }
        };
        if let Some((_, span)) = self.suspend_on.iter().find(|(on, _)| *on == code) {
            let program = program.to_string_lossy();
            let reason: String = format!("{program} ended with {code}").chars().take(60).collect();
            // The command's own code stands whatever becomes of this.
            match limiter.suspend_refused(bucket.name(), *span, &reason).await {
                Ok(left) => output::say(&format!(
                    "bucket {:?}: suspended for {}, since {reason}",
                    bucket.name(),
                    output::span(left)
                )),
                Err(error) => output::say(&format!("the fleet was not told: {error}")),
            }
        } else if ended.code().is_some() {
            // Where it went first at the end of a suspension, the others follow.
            call.answered();
            limiter.settled().await;
        }
        Ok(exit)
    }
}

/// Runs a command to its end. What asks us to end is passed on to it.
async fn run_to_end(command: Command) -> std::io::Result<Result<ExitStatus, Failure>> {
    let mut signals = match signal::Signals::listen() {
        Ok(signals) => signals,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut child = tokio::process::Command::from(command).spawn()?;
    loop {
        tokio::select! {
            ended = child.wait() => return ended.map(Ok),
            kind = signals.next() => {
                // What is typed at a terminal has reached the command by itself.
                if kind == SignalKind::interrupt() && std::io::stdin().is_terminal() {
                    continue;
                }
                let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
                if let (Some(pid), Some(signal)) = (pid, Signal::from_named_raw(kind.as_raw_value())) {
                    // It may have ended by itself just now.
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }
}

/// Reads `CODE=SPAN`.
fn suspend_on(text: &str) -> Result<(u8, Duration), String> {
    let allowed = || "write a code from 1 to 255 and a span, such as 75=30s".to_owned();
    let (code, span) = text.split_once('=').ok_or_else(allowed)?;
    let code = whole(1..=u8::MAX)(code).map_err(|_| allowed())?;
    let span =
        span_from(Duration::from_micros(1))(span).map_err(|what| format!("{span:?}: {what}"))?;
    Ok((code, span))
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
