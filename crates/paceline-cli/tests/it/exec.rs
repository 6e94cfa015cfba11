//! `paceline exec`: becomes the command, or says why not and takes nothing.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};

use paceline_testkit::{RedisServer, eventually, scratch_dir};
use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Answer, paceline};

/// `exec` of a command under a policy.
fn exec<'a>(quota: &'a str, command: &[&'a str]) -> Vec<&'a str> {
    [&["exec", "api", "--quota", quota, "--"], command].concat()
}

/// Sends a signal to a running child.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn it_ends_with_the_commands_own_code_and_output() {
    let answer =
        paceline(exec("5/s", &["sh", "-c", "echo out; echo err >&2; exit 7"])).ends_with(7);
    assert_eq!((answer.text(), answer.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn the_command_gets_its_arguments_input_and_environment_as_they_are() {
    let script = "cat; printf '%s|' \"$@\"; printf %s \"$ODD\"";
    let answer = paceline(exec("5/s", &["sh", "-c", script, "name", "a b", "", "--quota", "ä"]))
        .env("ODD", "x\ty")
        .input("from stdin\n")
        .ends_with(0);
    assert_eq!(answer.text(), "from stdin\na b||--quota|ä|x\ty");
}

#[test]
fn the_command_inherits_no_open_file_of_ours_and_ends_by_a_closed_pipe_as_usual() {
    let server = RedisServer::start();
    let folder = scratch_dir("exec");
    for store in [server.url(), format!("host:{}", folder.path().display())] {
        // Open files, and signals ignored (SIGPIPE among them): as for any command.
        for command in [&["ls", "/proc/self/fd"][..], &["grep", "SigIgn", "/proc/self/status"]] {
            let plain = Command::new(command[0]).args(&command[1..]).output().unwrap();
            let answer = paceline(exec("5/s", command)).store(&store).ends_with(0);
            assert_eq!(answer.stdout, plain.stdout, "{store}");
        }
    }
}

#[test]
fn a_signal_that_was_ignored_stays_so() {
    let folder = scratch_dir("exec");
    let status = ["grep", "SigIgn", "/proc/self/status"];
    let plain = Command::new("nohup").args(status).output().unwrap();
    let answer = Command::new("nohup")
        .args([env!("CARGO_BIN_EXE_paceline"), "--timeout", "10s", "--store"])
        .arg(format!("host:{}", folder.path().display()))
        .args(exec("5/s", &status))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(answer.stdout), String::from_utf8(plain.stdout));
}

#[test]
fn a_command_that_cannot_run_costs_no_permit() {
    let server = RedisServer::start();
    let folder = scratch_dir("exec");
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "not a program").unwrap();
    std::fs::set_permissions(&plain, std::fs::Permissions::from_mode(0o644)).unwrap();
    let plain = plain.to_str().unwrap();
    for (command, code, words) in [
        ("no-such-command-anywhere", 127, "no such command"),
        ("/no/such/file", 127, "no such command"),
        (plain, 126, "not executable"),
        ("/", 127, "no such command"),
    ] {
        let answer = paceline(exec("1/d", &[command])).store(&server.url()).ends_with(code);
        answer.says(&[command, words, "no permit was taken"]);
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), Some(0));
}

#[test]
fn refused_it_says_when_to_come_back_and_does_not_run_the_command() {
    let server = RedisServer::start();
    let run = |max_wait: &[&str]| {
        let arguments = [&["exec", "api", "--quota", "1/h"][..], max_wait, &["--", "echo", "ran"]];
        paceline(arguments.concat()).store(&server.url()).run()
    };
    assert_eq!(run(&[]).text(), "ran\n");
    for max_wait in ["0s", "2s"] {
        let answer = run(&["--max-wait", max_wait]);
        assert_eq!((answer.code, answer.text()), (Some(75), ""), "{}", answer.stderr);
        answer.says(&["\"api\"", "quota 1 (1/h)", "retry after"]);
    }
}

#[test]
fn refused_it_prints_the_same_json_as_acquire_and_granted_none() {
    let server = RedisServer::start();
    let run = |arguments: &[&str]| paceline(arguments).store(&server.url()).run();
    let exec = ["exec", "api", "--json", "--quota", "1/h", "--max-wait", "0s", "--", "echo", "ran"];
    assert_eq!(run(&exec).text(), "ran\n");
    let acquire = ["acquire", "api", "--json", "--quota", "1/h", "--max-wait", "0s"];
    let [acquired, refused] = [run(&acquire), run(&exec)].map(|answer| {
        assert_eq!(answer.code, Some(75), "{}", answer.stderr);
        let mut lines = answer.json();
        assert_eq!(lines.len(), 1, "{}", answer.text());
        let retry = lines[0]["retry_after_us"].take();
        assert!(retry.as_u64().unwrap() > 3_000_000_000, "{retry}");
        lines.remove(0)
    });
    assert_eq!(refused, acquired);
    assert_eq!((&refused["granted"], &refused["cause"]), (&false.into(), &"quota 1".into()));
    // Also where nobody reads it.
    for arguments in [&acquire[..], &exec] {
        let mut child = paceline(arguments).store(&server.url()).start();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(75));
    }
}

#[test]
fn a_cost_above_the_burst_is_refused_at_once() {
    let arguments = ["exec", "api", "--quota", "5/s", "--cost", "6", "--", "true"];
    paceline(arguments).ends_with(75).says(&["6", "5/s", "never"]);
}

#[test]
fn a_signal_ends_a_wait_and_gives_its_place_back() {
    let server = RedisServer::start();
    for (signal_sent, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        server.command(&["FLUSHALL"]);
        let store = server.url();
        let acquire = ["acquire", "api", "--quota", "1/500ms"];
        paceline(acquire).store(&store).ends_with(0);
        let waiting = paceline(exec("1/500ms", &["echo", "ran"])).store(&store).start();
        // It has booked once the bucket is ahead of the clock.
        let booked = || {
            let status = paceline(["status", "api", "--json"]).store(&store).run();
            status.code == Some(0) && status.json()[0]["booked_ahead_us"] != 0
        };
        let mut seen = false;
        for _ in 0..200 {
            seen = seen || booked();
            if seen {
                break;
            }
        }
        signal(&waiting, signal_sent);
        let answer = Answer::of(waiting.wait_with_output().unwrap());
        // Too slow a machine may let it run before the signal comes; then there is nothing to see.
        if answer.code == Some(0) {
            continue;
        }
        assert_eq!((answer.code, answer.text()), (Some(code), ""), "{}", answer.stderr);
        eventually("its place went back", || !booked());
    }
}
