//! Throws mutated answers at the readers: `fuzz --seconds N [--from SEED]`. Ends with 1 at the first
//! that breaks a promise, and prints its seed and the answer.
//!
//! The stable compiler has no coverage-guided fuzzer, so inputs come from what real answers look
//! like: the samples with bytes changed, cut, doubled and swapped between headers, and random
//! headers from the words that readers know. Each seed is one answer, read by every profile.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};
use paceline_http::{Profiles, read};
use serde_json::Value;

const SAMPLES: &str = include_str!("../../tests/it/samples.json");
/// Ten years, beyond which no span is told.
const SPAN_MAX_US: i64 = 315_360_000_000_000;
/// An answer that takes longer than this to read loops, or as good as. Far above what a busy
/// machine makes of a few microseconds.
const READ_MAX: Duration = Duration::from_secs(2);
/// Words that mean something to some reader.
const WORDS: [&[u8]; 28] = [
    b"0",
    b"-1",
    b"1e9",
    b"NaN",
    b"18446744073709551616",
    b"9223372036854775807",
    b"0.0000001",
    b"1773144030000",
    b"Tue, 10 Mar 2026 12:00:37 GMT",
    b"2026-03-10T12:00Z",
    b"6m0s",
    b"20ms",
    b";",
    b",",
    b"=",
    b"\"",
    b"\\",
    b":",
    b";w=60",
    b";r=0;t=30",
    b"\"p\"",
    b"limit=",
    b"remaining=",
    b"resets=",
    b"/",
    b"(",
    "µs".as_bytes(),
    b" ",
];
const NAMES: [&str; 24] = [
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-ratelimit-retry-after",
    "date",
    "age",
    "x-cache",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-reset-ms",
    "x-ratelimit-used",
    "x-ratelimit-fillrate",
    "x-ratelimit-interval-ms",
    "x-rate-limit",
    "x-ratelimit-resource",
    "zendesk-ratelimit-x",
    "sforce-limit-info",
    "x-app-usage",
];

/// One answer.
#[derive(Debug, Clone)]
struct Input {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    now: i64,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let at = words.iter().position(|word| word == name);
        match at.map(|at| words.get(at + 1).and_then(|word| word.parse().ok())) {
            None => Some(otherwise),
            Some(number) => number,
        }
    };
    let (Some(seconds), Some(from)) = (number("--seconds", 10), number("--from", 0)) else {
        eprintln!("usage: fuzz [--seconds N] [--from SEED], both whole numbers");
        return ExitCode::from(2);
    };
    let Some(samples) = samples() else {
        eprintln!("the samples cannot be read");
        return ExitCode::FAILURE;
    };
    let (begin, span) = (Instant::now(), Duration::from_secs(seconds));
    let (mut seed, mut readings, mut suspensions, mut limits) = (from, 0_u64, 0_u64, 0_u64);
    while begin.elapsed() < span || seed == from {
        let input = input(seed, &samples);
        match check(&input) {
            Ok(told) => {
                readings += told.0;
                suspensions += told.1;
                limits += told.2;
            }
            Err(broken) => {
                eprintln!("seed {seed}: {broken}\n{input:#?}");
                eprintln!("again: cargo xtask fuzz --seconds 0 --from {seed}");
                return ExitCode::FAILURE;
            }
        }
        seed += 1;
    }
    println!(
        "{} answers, {readings} readings, {suspensions} suspensions, {limits} limits, no finding",
        seed - from
    );
    ExitCode::SUCCESS
}

fn samples() -> Option<Vec<Input>> {
    let samples: Vec<Value> = serde_json::from_str(SAMPLES).ok()?;
    samples
        .iter()
        .map(|sample| {
            let mut headers = Vec::new();
            for (name, value) in sample["headers"].as_object()? {
                let lines = match value {
                    Value::Array(lines) => lines.clone(),
                    line => vec![line.clone()],
                };
                for line in lines {
                    headers.push((name.to_ascii_lowercase(), line.as_str()?.as_bytes().to_vec()));
                }
            }
            let status = u16::try_from(sample["status"].as_u64()?).ok()?;
            let body = sample["body"].as_str().map(|body| body.as_bytes().to_vec());
            let now = sample["now_unix"].as_i64()? * 1_000_000;
            Some(Input { status, headers, body, now })
        })
        .collect()
}

/// The answer of a seed.
fn input(seed: u64, samples: &[Input]) -> Input {
    let mut rng = Rng::with_seed(seed);
    let mut input = samples[rng.usize(..samples.len())].clone();
    if rng.u8(..4) == 0 {
        input.headers.clear();
    }
    for _ in 0..rng.usize(..4) {
        let name = NAMES[rng.usize(..NAMES.len())].to_owned();
        let value = (0..rng.usize(..6)).flat_map(|_| word(&mut rng)).collect();
        input.headers.push((name, value));
    }
    // Values under names that are not theirs.
    if rng.bool() && !input.headers.is_empty() {
        let other = &samples[rng.usize(..samples.len())];
        if let Some((name, value)) = rng.choice(&other.headers) {
            let at = rng.usize(..input.headers.len());
            input.headers[at].1.clone_from(value);
            input.headers.push((name.clone(), value.clone()));
        }
    }
    for _ in 0..rng.usize(..8) {
        if !input.headers.is_empty() {
            let at = rng.usize(..input.headers.len());
            mutate(&mut input.headers[at].1, &mut rng);
        }
    }
    if let Some(body) = &mut input.body {
        for _ in 0..rng.usize(..4) {
            mutate(body, &mut rng);
        }
        if rng.u8(..16) == 0 {
            *body = body.repeat(rng.usize(..300));
        }
    }
    match rng.u8(..8) {
        0 => input.status = rng.u16(..1000),
        1 => input.status = 429,
        _ => {}
    }
    match rng.u8(..8) {
        0 => input.now = rng.i64(..),
        1 => input.now = i64::MIN,
        2 => input.now = i64::MAX,
        _ => {}
    }
    input
}

fn word(rng: &mut Rng) -> Vec<u8> {
    match rng.u8(..3) {
        0 => rng.u64(..).to_string().into_bytes(),
        1 => vec![rng.u8(..)],
        _ => WORDS[rng.usize(..WORDS.len())].to_vec(),
    }
}

fn mutate(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.usize(..=bytes.len());
    match rng.u8(..6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(..at)),
        2 => {
            let word = word(rng);
            bytes.splice(at..at, word);
        }
        3 => {
            let tail = bytes[at..].to_vec();
            bytes.extend(tail);
        }
        4 if at < bytes.len() => bytes[at] = rng.u8(..),
        _ if at < bytes.len() => bytes[at] ^= 1 << rng.u8(..8),
        _ => {}
    }
}

/// Reads an answer by every profile, and says which promise is broken.
fn check(input: &Input) -> Result<(u64, u64, u64), String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &input.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    let (mut readings, mut suspensions, mut limits) = (0, 0, 0);
    for profile in Profiles::builtin().iter() {
        let begin = Instant::now();
        let read = || read(input.status, &headers, input.body.as_deref(), input.now, profile);
        let reading = catch_unwind(AssertUnwindSafe(read))
            .map_err(|_| format!("{} panicked", profile.name()))?;
        if begin.elapsed() > READ_MAX {
            return Err(format!("{} took {:?}", profile.name(), begin.elapsed()));
        }
        readings += 1;
        if let Some(suspension) = &reading.suspension {
            let is_bounded = (0..=profile.wait_max_us()).contains(&suspension.wait_us)
                && suspension.wait_us <= suspension.asked_us
                && suspension.limit.is_none_or(|at| at < reading.limits.len());
            if !is_bounded {
                return Err(format!("{}: {suspension:?}", profile.name()));
            }
            suspensions += 1;
        }
        for limit in &reading.limits {
            let is_span = |us: Option<i64>| us.is_none_or(|us| (0..=SPAN_MAX_US).contains(&us));
            if !is_span(limit.reset_us) || !is_span(limit.window_us) || limit.limit == Some(0) {
                return Err(format!("{}: {limit:?}", profile.name()));
            }
            limits += 1;
        }
    }
    Ok((readings, suspensions, limits))
}
