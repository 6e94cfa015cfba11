//! `paceline pace`: lines pass whole, once, in order and at the pace.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;

use paceline_testkit::{FaultProxy, Mode, RedisServer, eventually, scratch_dir};
use rustix::process::Signal;

use crate::exec::signal;
use crate::program::{Answer, paceline};

fn pace(quota: &str) -> [&str; 4] {
    ["pace", "api", "--quota", quota]
}

/// What is left of the bucket, as `status` tells.
fn left(store: &str) -> u64 {
    let answer = paceline(["status", "api", "--json"]).store(store).ends_with(0);
    answer.json()[0]["quotas"][0]["remaining"].as_u64().unwrap()
}

/// Writes a line and reads it back.
fn converse(child: &mut Child, out: &mut impl BufRead, line: &str) {
    child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    let mut back = String::new();
    out.read_line(&mut back).unwrap();
    assert_eq!(back, line);
}

#[test]
fn lines_pass_byte_for_byte() {
    let long = [vec![b'x'; 1_000_000], b"\n".to_vec()].concat();
    for input in [
        b"".to_vec(),
        b"one\n".to_vec(),
        b"\n\n\n".to_vec(),
        b"dos\r\nline\r\n".to_vec(),
        b"\xff\x00\xfe binary\n\x80\n".to_vec(),
        b"the last has no end".to_vec(),
        b"a\nthe last has no end".to_vec(),
        long,
    ] {
        let answer = paceline(pace("1000000/s")).input(input.clone()).ends_with(0);
        assert_eq!(answer.stdout, input);
        assert_eq!(answer.stderr, "");
    }
}

#[test]
fn each_line_is_written_as_soon_as_it_has_its_permit() {
    let mut child = paceline(pace("1000/s")).start();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // The next is sent only after the one before it has come back, so nothing is held back.
    for number in 0..20 {
        converse(&mut child, &mut out, &format!("line {number}\n"));
    }
    drop(child.stdin.take());
    assert_eq!(out.read_to_end(&mut Vec::new()).unwrap(), 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn two_pipelines_share_one_bucket_and_no_line_passes_twice() {
    let folder = scratch_dir("pace");
    let server = RedisServer::start();
    for store in [format!("host:{}", folder.path().display()), server.url()] {
        let start = |letter: char| {
            let arguments = ["pace", "api", "--quota", "50/d", "--max-wait", "0s"];
            let mut child = paceline(arguments).store(&store).start();
            let input: String = (0..100).map(|n| format!("{letter}{n}\n")).collect();
            let mut stdin = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || {
                let _ = stdin.write_all(input.as_bytes());
            });
            (child, writer)
        };
        let both = [start('a'), start('b')];
        let mut passed = 0;
        for (index, (child, writer)) in both.into_iter().enumerate() {
            let answer = Answer::of(child.wait_with_output().unwrap());
            writer.join().unwrap();
            assert_eq!(answer.code, Some(75));
            let lines: Vec<&str> = answer.text().lines().collect();
            let letter = ['a', 'b'][index];
            for (number, line) in lines.iter().enumerate() {
                assert_eq!(*line, format!("{letter}{number}"));
            }
            // The first that did not pass is named.
            answer.says(&[&format!("line {} was not written", lines.len() + 1)]);
            passed += lines.len();
        }
        assert_eq!(passed, 50, "{store}");
    }
}

#[test]
fn a_closed_pipe_ends_it_quietly_and_the_line_that_was_not_written_costs_nothing() {
    let server = RedisServer::start();
    let store = server.url();
    // Another test's child, between its fork and its program, holds our end of the pipe open for a
    // moment; a line written in that moment is written, and costs. So more tries than one.
    for _ in 0..20 {
        server.command(&["FLUSHALL"]);
        let mut child = paceline(pace("100/d")).store(&store).start();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        for number in 0..3 {
            converse(&mut child, &mut out, &format!("{number}\n"));
        }
        drop(out);
        let _ = child.stdin.as_mut().unwrap().write_all(b"nobody reads this\n");
        drop(child.stdin.take());
        let answer = Answer::of(child.wait_with_output().unwrap());
        assert_eq!((answer.code, answer.stderr.as_str()), (Some(0), ""));
        match left(&store) {
            97 => return,
            left => assert_eq!(left, 96),
        }
    }
    panic!("the permit of the line that was not written never went back");
}

#[test]
fn a_reader_that_goes_away_during_a_long_wait_is_noticed() {
    let server = RedisServer::start();
    let mut child = paceline(pace("1/d")).store(&server.url()).start();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    converse(&mut child, &mut out, "first\n");
    child.stdin.as_mut().unwrap().write_all(b"waits a day\n").unwrap();
    drop(out);
    // Its input stays open: only the reader's end tells.
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_store_that_goes_away_is_waited_for_by_the_line_in_hand() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.addr());
    let arguments = ["pace", "api", "--quota", "100/d", "--timeout", "5s"];
    let mut child = paceline(arguments).store(&proxy.url()).start();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut words = BufReader::new(child.stderr.take().unwrap());
    converse(&mut child, &mut out, "first\n");
    proxy.set(Mode::Refuse);
    proxy.cut_connections();
    child.stdin.as_mut().unwrap().write_all(b"second\n").unwrap();
    let mut said = String::new();
    words.read_line(&mut said).unwrap();
    assert!(said.contains("line 2 waits for it") && said.contains("away"), "{said}");
    proxy.set(Mode::Pass);
    let mut back = String::new();
    out.read_line(&mut back).unwrap();
    assert_eq!(back, "second\n");
    converse(&mut child, &mut out, "third\n");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(out.read_to_end(&mut Vec::new()).unwrap(), 0);
}

#[test]
fn a_store_that_is_away_from_the_start_ends_it_with_69() {
    let answer = paceline(pace("5/s")).store("redis://127.0.0.1:1").input("a\n").ends_with(69);
    answer.says(&["127.0.0.1:1", "line 1 was not written"]);
    assert_eq!(answer.text(), "");
}

#[test]
fn a_signal_ends_it_as_it_ends_any_program() {
    let mut child = paceline(pace("1/d")).start();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    converse(&mut child, &mut out, "first\n");
    child.stdin.as_mut().unwrap().write_all(b"second\n").unwrap();
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
