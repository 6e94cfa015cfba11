//! A worker process: this program again, with hidden words. It says when it is ready, begins when it
//! is told to, and tells two numbers at its end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One that runs. It is killed where it has not ended when this is dropped.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(words: impl IntoIterator<Item = String>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(words);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("a worker starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Self { child, stdin, stdout };
        assert_eq!(process.line(), "ready");
        process
    }

    pub(crate) fn go(&mut self) {
        self.stdin.write_all(b"go\n").expect("a worker that listens");
    }

    /// Waits for its end; the two numbers that it tells.
    pub(crate) fn told<A, B>(&mut self) -> (A, B)
    where
        A: std::str::FromStr<Err: std::fmt::Debug>,
        B: std::str::FromStr<Err: std::fmt::Debug>,
    {
        let line = self.line();
        let (first, second) = line.split_once(' ').expect("two numbers");
        self.child.wait().expect("a worker that ends");
        (first.parse().expect("a number"), second.parse().expect("a number"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a worker speaks");
        line.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, or this is a failure and it must.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side: says that it is ready, and waits until it is told to begin.
pub(crate) fn ready() {
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a word");
}
