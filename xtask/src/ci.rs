//! One run over everything, stopping at the first step that fails, the tests last: then the last
//! line of a run is `N passed, N failed` over all suites.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::say;

/// The exit code of what failed. Why is told where it happens, so that the count of the tests can
/// stay the last line.
#[derive(Debug, PartialEq)]
pub(crate) struct Failed(pub(crate) u8);

pub(crate) fn run() -> Result<(), Failed> {
    install_redis()?;
    step(cargo().args(["fmt", "--all", "--check"]))?;
    step(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    step(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"))?;
    if on_path("cargo-deny") {
        // Advisories come from the network and change by themselves: not a change's own fault.
        step(cargo().args(["deny", "check", "bans", "licenses", "sources"]))?;
    } else {
        say("cargo-deny is not installed: bans, licences and sources are not checked in this run");
    }
    // All suites, so that one run shows all that is broken.
    tests(cargo().args(["test", "--workspace", "--no-fail-fast"]))
}

/// Tests start servers of their own from the `redis-server` on the PATH. One that the package may
/// start by itself on the usual port is neither needed nor touched.
pub(crate) fn install_redis() -> Result<(), Failed> {
    if on_path("redis-server") {
        return Ok(());
    }
    if !on_path("apt-get") {
        return Err(fail(
            "redis-server is not on the PATH and there is no apt-get to install it with: \
             install Redis 6.2 or later, then run this again",
        ));
    }
    let as_root: &[&str] = if is_root() { &[] } else { &["sudo", "-n"] };
    for apt in [
        &["apt-get", "update"][..],
        &["apt-get", "install", "-y", "--no-install-recommends", "redis-server"],
    ] {
        let words = [as_root, &["env", "DEBIAN_FRONTEND=noninteractive"], apt].concat();
        let mut command = Command::new(words[0]);
        // What a package manager says is not this run's output.
        step(command.args(&words[1..]).stdout(io::stderr())).inspect_err(|_| {
            say("redis-server could not be installed: install Debian's redis-server by hand, \
                 then run this again");
        })?;
    }
    if on_path("redis-server") {
        Ok(())
    } else {
        Err(fail("redis-server was installed and is still not on the PATH"))
    }
}

pub(crate) fn step(command: &mut Command) -> Result<(), Failed> {
    announce(command);
    let status = command.status().map_err(|e| {
        fail(&format!("cannot run {}: {e}", command.get_program().to_string_lossy()))
    })?;
    ended(command, status)
}

/// Runs the tests, lets their output through as it comes, and adds up the suites.
fn tests(command: &mut Command) -> Result<(), Failed> {
    announce(command);
    let cannot = |e: io::Error| fail(&format!("cannot run the tests: {e}"));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(cannot)?;
    let mut count = Count::default();
    if let Some(out) = child.stdout.take() {
        let mut out = BufReader::new(out);
        let mut line = Vec::new();
        // Bytes rather than text: a test may print anything.
        while out.read_until(b'\n', &mut line).map_err(cannot)? > 0 {
            io::stdout().write_all(&line).map_err(cannot)?;
            count.add(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
    let status = child.wait().map_err(cannot)?;
    let result = match ended(command, status) {
        // Cargo is content with having found nothing to run; a check must not be.
        Ok(()) if count.passed == 0 => Err(fail("no test ran")),
        result => result,
    };
    if count.suites > 0 {
        let sum = format!("{} passed, {} failed\n", count.passed, count.failed);
        io::stdout().write_all(sum.as_bytes()).map_err(cannot)?;
    }
    result
}

/// The sum of the `test result:` lines.
#[derive(Debug, Default, PartialEq)]
struct Count {
    suites: u64,
    passed: u64,
    failed: u64,
}

impl Count {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; …`; leaves out others.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        self.suites += 1;
        for part in result.split(';') {
            let mut words = part.split_whitespace().rev();
            let (what, number) = (words.next(), words.next().and_then(|n| n.parse::<u64>().ok()));
            match (what, number) {
                (Some("passed"), Some(n)) => self.passed += n,
                (Some("failed"), Some(n)) => self.failed += n,
                _ => {}
            }
        }
    }
}

/// The cargo that runs this, without what it has set for this program alone: some build scripts
/// (ring's) look at that, and would build again for each cargo run outside of xtask.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

fn announce(command: &Command) {
    say(&spelled(command));
}

fn ended(command: &Command, status: ExitStatus) -> Result<(), Failed> {
    if status.success() {
        return Ok(());
    }
    say(&format!("{} failed ({status})", spelled(command)));
    // Ended by a signal there is no code; any but 0 will do.
    Err(Failed(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn fail(words: &str) -> Failed {
    say(words);
    Failed(1)
}

/// The command as one would type it.
fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_are_added_up_and_other_lines_left_out() {
        let mut count = Count::default();
        for line in [
            "running 3 tests\n",
            "test a ... ok\n",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            "the test result: ok. 9 passed; 9 failed;\n",
            "test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { suites: 2, passed: 15, failed: 2 });
    }

    #[test]
    fn a_step_that_fails_ends_with_its_own_code() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 7"]);
        assert_eq!(step(&mut command), Err(Failed(7)));
        assert_eq!(step(Command::new("sh").args(["-c", "exit 0"])), Ok(()));
        assert_eq!(step(&mut Command::new("/nowhere/at/all")), Err(Failed(1)));
    }
}
