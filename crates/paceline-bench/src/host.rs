//! The host store: one decision in one process, and what four processes get through in total on
//! one bucket and on four. The processes are this program again, with hidden words.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use paceline::Limiter;
use paceline_testkit::scratch_dir;

use crate::Figure;

/// The hidden first word of a worker.
pub(crate) const WORKER: &str = "host-worker";
/// Lets everything through, so that every decision is a grant and writes.
const POLICY: &str = "1000000/s burst 1000000000";
const PROCESSES: usize = 4;
const CALLS: usize = 200_000;
const SPAN: Duration = Duration::from_secs(3);

/// The median of one `try_acquire` and `spend` in one process.
pub(crate) fn one_process(what: &str, target_us: f64) -> Figure {
    let folder = scratch_dir("figures");
    let url = format!("host:{}", folder.path().display());
    let mut us = crate::runtime().block_on(async {
        let limiter = Limiter::open(&url).await.expect("a scratch folder");
        let bucket = limiter.bucket("figures", POLICY).expect("a policy");
        let mut us = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let start = Instant::now();
            let answer = bucket.try_acquire().await.expect("the store answers");
            answer.permit().expect("there is room").spend();
            us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        us
    });
    let p50 = crate::median(&mut us);
    let p99 = us[us.len() * 99 / 100];
    Figure {
        what: what.to_owned(),
        target: format!("at most {target_us} us"),
        measured: format!("p50 {p50:.2} us, p99 {p99:.2} us"),
        met: p50 <= target_us,
    }
}

/// Opening the store and taking one token: what a process that makes one call pays.
pub(crate) fn opening(what: &str, target_us: f64) -> Figure {
    let folder = scratch_dir("figures");
    let url = format!("host:{}", folder.path().display());
    let mut us = crate::runtime().block_on(async {
        let mut us = Vec::new();
        for _ in 0..500 {
            let start = Instant::now();
            let limiter = Limiter::open(&url).await.expect("a scratch folder");
            let bucket = limiter.bucket("figures", POLICY).expect("a policy");
            let answer = bucket.try_acquire().await.expect("the store answers");
            answer.permit().expect("there is room").spend();
            us.push(start.elapsed().as_secs_f64() * 1e6);
        }
        us
    });
    let p50 = crate::median(&mut us);
    Figure {
        what: what.to_owned(),
        target: format!("at most {target_us} us"),
        measured: format!("p50 {p50:.0} us, p99 {:.0} us", us[us.len() * 99 / 100]),
        met: p50 <= target_us,
    }
}

/// Decisions a second by four processes in total.
pub(crate) fn four_processes(what: &str, same_bucket: bool, target: f64) -> Figure {
    let folder = scratch_dir("figures");
    let url = format!("host:{}", folder.path().display());
    let program = std::env::current_exe().expect("this program");
    // Late enough that all are up.
    let start = SystemTime::now() + Duration::from_millis(500);
    let start = start.duration_since(UNIX_EPOCH).expect("after 1970").as_micros();
    let workers: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let bucket = if same_bucket { "shared".to_owned() } else { format!("own {number}") };
            Command::new(&program)
                .args([WORKER, &url, &bucket, &start.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .expect("this program starts again")
        })
        .collect();
    let (mut calls, mut failed, mut fewest, mut longest_us) = (0, 0, u64::MAX, 0);
    for worker in workers {
        let output = worker.wait_with_output().expect("a worker ends");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers: Vec<u64> =
            text.split_whitespace().map(|it| it.parse().expect("a number")).collect();
        calls += numbers[0];
        failed += numbers[1];
        fewest = fewest.min(numbers[0]);
        longest_us = longest_us.max(numbers[2]);
    }
    let rate = calls as f64 / SPAN.as_secs_f64();
    let least = fewest as f64 / calls as f64 * 100.0;
    Figure {
        what: what.to_owned(),
        target: format!("at least {target}/s"),
        measured: format!(
            "{rate:.0}/s, {failed} failed, least {least:.0} %, longest {} ms",
            longest_us.div_ceil(1_000)
        ),
        met: rate >= target && failed == 0,
    }
}

/// What a worker does: decisions from the start on, as many as it can; prints how many,
/// how many failed, and the longest in microseconds.
pub(crate) fn worker(words: &[String]) {
    let [url, bucket, start] = words else { panic!("{WORKER} URL BUCKET START") };
    let start = UNIX_EPOCH + Duration::from_micros(start.parse().expect("a number"));
    let (calls, failed, longest) = crate::runtime().block_on(async {
        let limiter = Limiter::open(url).await.expect("a scratch folder");
        let bucket = limiter.bucket(bucket, POLICY).expect("a policy");
        let early = start.duration_since(SystemTime::now()).unwrap_or_default();
        tokio::time::sleep(early).await;
        let end = Instant::now() + SPAN;
        let (mut calls, mut failed, mut longest) = (0_u64, 0_u64, Duration::ZERO);
        let mut before = Instant::now();
        while before < end {
            match bucket.try_acquire().await {
                Ok(answer) => {
                    answer.permit().expect("there is room").spend();
                    calls += 1;
                }
                Err(_) => failed += 1,
            }
            let now = Instant::now();
            longest = longest.max(now - before);
            before = now;
        }
        (calls, failed, longest)
    });
    println!("{calls} {failed} {}", longest.as_micros());
}
