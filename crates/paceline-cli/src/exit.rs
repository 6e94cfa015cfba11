//! How a run ends: the exit codes, and what failed in words. The numbers are those of `sysexits.h`
//! where it has one.

use std::process::ExitCode;

use paceline::{Error, Refusal};

/// What a run that ends by itself tells its caller. `exec` ends with its command's own code, or as
/// shells do with [`CANNOT_RUN`](Self::CANNOT_RUN) and [`NO_COMMAND`](Self::NO_COMMAND).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8);

impl Exit {
    pub(crate) const DONE: Self = Self(0);
    /// Did what it was asked and found it wrong: a mismatch in a replay, a 429 in the demo, a risk
    /// of the store, a property of the design that a simulation broke.
    pub(crate) const FAILED: Self = Self(1);
    /// What it was given is not allowed.
    pub(crate) const USAGE: Self = Self(2);
    /// There is no such bucket, or no such file.
    pub(crate) const NO_INPUT: Self = Self(66);
    /// The store is away.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// Input or output failed.
    pub(crate) const IO: Self = Self(74);
    /// Refused: no permit now, none before the deadline, or never.
    pub(crate) const REFUSED: Self = Self(75);
    /// The store holds or is something this version cannot work with.
    pub(crate) const INCOMPATIBLE: Self = Self(76);
    /// The store does not let us in, or has not the database we name.
    pub(crate) const FORBIDDEN: Self = Self(77);
    /// The command is there and cannot be run.
    pub(crate) const CANNOT_RUN: Self = Self(126);
    /// There is no such command.
    pub(crate) const NO_COMMAND: Self = Self(127);

    /// What a call that fails with this ends with.
    pub(crate) fn of(error: &Error) -> Self {
        if error.is_input() {
            Self::USAGE
        } else if error.is_unavailable() {
            Self::UNAVAILABLE
        } else if error.is_never() {
            Self::REFUSED
        } else if error.is_forbidden() {
            Self::FORBIDDEN
        } else {
            Self::INCOMPATIBLE
        }
    }

    /// As a command ended: by its own code.
    pub(crate) fn of_command(code: u8) -> Self {
        Self(code)
    }

    /// Ended by a signal.
    pub(crate) fn by_signal(number: i32) -> Self {
        Self(128 + u8::try_from(number).unwrap_or(0))
    }
}

/// For the foot of `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0    done
  1    done, and found wrong (replay: a mismatch; demo: a 429, or a worker that did not obey;
       doctor: a risk, or what is wrong and no call ends with; simulate: a promise of Paceline's
       own broken, a fault worth reporting with what it says)
  2    what was given is not allowed
  66   no such bucket, no such file
  69   the store is away
  74   input or output failed
  75   refused: no permit now or before the deadline, or never
  76   the store is too old, or holds what this version cannot read
  77   the store does not let us in, or has no such database
  126  exec: the command cannot be run    127  exec: there is no such command
  128+N  ended by signal N
  exec ends with its command's own code.

Data goes to stdout, words to stderr.";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// Why a run ends early, in words for stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty where there is nothing to say, as after a signal.
    pub(crate) words: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, words: impl Into<String>) -> Self {
        Self { exit, words: words.into() }
    }

    pub(crate) fn quiet(exit: Exit) -> Self {
        Self::new(exit, "")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Exit::of(&error), error.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(Exit::REFUSED, refusal.to_string())
    }
}
