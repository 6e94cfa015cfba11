//! The binary, run with arguments, input and a store, and what it answered.

use std::ffi::OsStr;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// One run to come.
pub(crate) struct Program {
    command: Command,
    input: Vec<u8>,
}

/// What a run answered.
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// The binary with these arguments, on a store of its own unless told.
pub(crate) fn paceline<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Program {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    // On a loaded machine a store may take longer than the default; no test waits for it.
    command.args(["--timeout", "10s"]).args(arguments);
    command.env("PACELINE_STORE", "memory:").env_remove("PACELINE_WHEN_AWAY");
    Program { command, input: Vec::new() }
}

impl Program {
    pub(crate) fn store(mut self, url: &str) -> Self {
        self.command.env("PACELINE_STORE", url);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Starts it with all three streams piped, for tests that hold a conversation.
    pub(crate) fn start(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().unwrap()
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Answer {
        let input = std::mem::take(&mut self.input);
        let mut child = self.start();
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || {
            // A program that does not read its input is no failure.
            let _ = stdin.write_all(&input);
        });
        let answer = Answer::of(child.wait_with_output().unwrap());
        writer.join().unwrap();
        answer
    }

    /// Runs it and requires this exit code.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Answer {
        let answer = self.run();
        assert_eq!(answer.code, Some(code), "stdout {:?}\nstderr {}", answer.text(), answer.stderr);
        answer
    }
}

impl Answer {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Its stdout as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Its stdout as JSON, a value a line.
    #[track_caller]
    pub(crate) fn json(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Requires its words on stderr to hold each of these.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing in {}", self.stderr);
        }
        self
    }
}
