//! Real processes before a strict provider: what the provider refuses, what of its quota is used,
//! and what is asked of the store for each call that goes out. The workers are this program again,
//! with hidden words; each has many callers that always want more, and every call takes up to 10 ms
//! to the provider, which is a thread here and judges calls as they arrive.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use paceline::Limiter;
use paceline_testkit::{RedisServer, scratch_dir};

use crate::Figure;

/// The hidden first word of a worker.
pub(crate) const WORKER: &str = "fleet-worker";
/// Most time a call takes to the provider.
const JITTER_US: u64 = 10_000;
/// Commands that the script runs inside the server, and those of this measurement.
const INNER: [&str; 10] = [
    "hget",
    "hset",
    "hmget",
    "hdel",
    "hgetall",
    "pexpire",
    "time",
    "publish",
    "config|resetstat",
    "info",
];

/// One fleet to measure.
#[derive(Debug, Clone)]
pub(crate) struct Fleet {
    pub(crate) policy: String,
    pub(crate) limit: usize,
    pub(crate) interval: Duration,
    /// Counts windows that begin at a hidden moment; else any span of the interval.
    pub(crate) fixed: bool,
    /// Else the host store.
    pub(crate) redis: bool,
    pub(crate) processes: usize,
    pub(crate) callers: usize,
    pub(crate) seconds: u64,
}

/// What is wanted of it: least share of the quota, most operations a call.
pub(crate) struct Wanted {
    pub(crate) share: f64,
    pub(crate) operations: f64,
}

/// Runs a fleet. Words `policy=…`, `seconds=…`, `processes=…` on the command line change it.
pub(crate) fn measure(what: &str, mut fleet: Fleet, wanted: Wanted) -> Figure {
    for word in std::env::args() {
        match word.split_once('=') {
            Some(("policy", policy)) => fleet.policy = policy.to_owned(),
            Some(("seconds", seconds)) => fleet.seconds = seconds.parse().expect("a number"),
            Some(("processes", number)) => fleet.processes = number.parse().expect("a number"),
            _ => {}
        }
    }
    let seen = run(&fleet);
    let Seen { calls, refused, share, operations, fairness, longest_wait } = seen;
    Figure {
        what: what.to_owned(),
        target: format!(
            "0 429s, {:.0} %, {} a call",
            wanted.share * 100.0,
            if wanted.operations.is_finite() {
                wanted.operations.to_string()
            } else {
                "-".to_owned()
            }
        ),
        measured: format!(
            "{refused} 429s of {calls}, {:.1} % used, {operations:.2} a call, Jain {fairness:.3}, \
             longest mean wait {longest_wait:.1} times the mean",
            share * 100.0
        ),
        met: refused == 0 && share >= wanted.share && operations <= wanted.operations,
    }
}

struct Seen {
    calls: usize,
    refused: usize,
    share: f64,
    operations: f64,
    fairness: f64,
    /// The longest mean wait of a process, in means of all.
    longest_wait: f64,
}

/// One call as the provider saw it.
struct Arrival {
    at: Instant,
    worker: usize,
    waited_us: u64,
    accepted: bool,
}

fn run(fleet: &Fleet) -> Seen {
    let server = fleet.redis.then(RedisServer::start);
    let folder = scratch_dir("figures");
    let url = match &server {
        Some(server) => server.url(),
        None => format!("host:{}", folder.path().display()),
    };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port");
    let provider = socket.local_addr().expect("an address");
    let (stop, stopped) = mpsc::channel();
    let judge = {
        let fleet = fleet.clone();
        std::thread::spawn(move || judge(&socket, &fleet, &stopped))
    };
    let program = std::env::current_exe().expect("this program");
    let mut workers: Vec<Worker> = (0..fleet.processes)
        .map(|number| {
            let words = [
                WORKER.to_owned(),
                url.clone(),
                fleet.policy.clone(),
                provider.to_string(),
                number.to_string(),
                fleet.callers.to_string(),
                fleet.seconds.to_string(),
            ];
            Worker::start(Command::new(&program).args(words))
        })
        .collect();
    for worker in &mut workers {
        assert_eq!(worker.line(), "ready");
    }
    if let Some(server) = &server {
        server.command(&["CONFIG", "RESETSTAT"]);
    }
    for worker in &mut workers {
        worker.stdin.write_all(b"go\n").expect("a worker that listens");
    }
    let mut operations: f64 =
        workers.iter_mut().map(|worker| worker.line().parse::<f64>().expect("a number")).sum();
    if let Some(server) = &server {
        let stats = server.command(&["INFO", "commandstats"]);
        let text = stats.text().expect("a text").to_owned();
        operations = text.lines().filter_map(calls_of_client).sum();
    }
    for worker in &mut workers {
        worker.child.wait().expect("a worker that ends");
    }
    stop.send(()).expect("the judge listens");
    let arrivals = judge.join().expect("the judge");
    seen(fleet, &arrivals, operations)
}

/// Calls of a line of `INFO commandstats`, where a client sent them.
fn calls_of_client(line: &str) -> Option<f64> {
    let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = stats.strip_prefix("calls=")?.split(',').next()?;
    if INNER.contains(&command) { None } else { calls.parse().ok() }
}

#[allow(clippy::cast_precision_loss, reason = "figures")]
fn seen(fleet: &Fleet, arrivals: &[Arrival], operations: f64) -> Seen {
    let first = arrivals.first().expect("somebody called").at;
    let span = Duration::from_secs(fleet.seconds);
    let within = |arrival: &&Arrival| arrival.accepted && arrival.at - first < span;
    let accepted = arrivals.iter().filter(within).count() as f64;
    let allowed = fleet.limit as f64 * span.as_secs_f64() / fleet.interval.as_secs_f64();
    let mut by_worker = vec![(0.0, 0.0); fleet.processes];
    for arrival in arrivals {
        let (calls, waited) = &mut by_worker[arrival.worker];
        *calls += 1.0;
        *waited += arrival.waited_us as f64;
    }
    let calls: f64 = by_worker.iter().map(|it| it.0).sum();
    let squares: f64 = by_worker.iter().map(|it| it.0 * it.0).sum();
    let mean = by_worker.iter().map(|it| it.1).sum::<f64>() / calls;
    let longest = by_worker.iter().map(|it| it.1 / it.0.max(1.0)).fold(0.0, f64::max);
    Seen {
        calls: arrivals.len(),
        refused: arrivals.iter().filter(|arrival| !arrival.accepted).count(),
        share: accepted / allowed,
        operations: operations / calls,
        fairness: calls * calls / (fleet.processes as f64 * squares),
        longest_wait: longest / mean,
    }
}

/// Judges calls as they arrive, until told to stop.
fn judge(socket: &UdpSocket, fleet: &Fleet, stopped: &mpsc::Receiver<()>) -> Vec<Arrival> {
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    let started = Instant::now();
    let age = fleet.interval.mul_f64(fastrand::f64());
    let (mut log, mut window, mut count) = (VecDeque::new(), 0, 0);
    let mut arrivals = Vec::new();
    let mut packet = [0; 64];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut packet) else {
            if stopped.try_recv().is_ok() {
                return arrivals;
            }
            continue;
        };
        let at = Instant::now();
        let accepted = if fleet.fixed {
            let now = ((at - started + age).as_nanos() / fleet.interval.as_nanos()) as u64;
            if now > window {
                (window, count) = (now, 0);
            }
            count +=
                usize::from(count < fleet.limit) + usize::from(count >= fleet.limit) * fleet.limit;
            count <= fleet.limit
        } else {
            while log.front().is_some_and(|oldest| at - *oldest >= fleet.interval) {
                log.pop_front();
            }
            let room = log.len() < fleet.limit;
            if room {
                log.push_back(at);
            }
            room
        };
        let text = std::str::from_utf8(&packet[..length]).expect("our own words");
        let mut words = text.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        let (worker, waited_us) = (words.next().expect("who"), words.next().expect("how long"));
        arrivals.push(Arrival { at, worker: worker as usize, waited_us, accepted });
        socket.send_to(if accepted { b"200" } else { b"429" }, from).expect("a caller");
    }
}

/// A worker process.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("a worker starts");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a worker speaks");
        line.trim().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended, or this is a failure and it must.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a worker does: its callers call for so many seconds, and it tells its operations.
pub(crate) fn worker(words: &[String]) {
    let [url, policy, provider, number, callers, seconds] = words else {
        panic!("six words: {words:?}")
    };
    let number_of = |word: &str| word.parse::<u64>().expect("a number");
    let span = Duration::from_secs(number_of(seconds));
    crate::runtime().block_on(async {
        let limiter = Limiter::builder(url).timeout(Duration::from_secs(5)).open().await;
        let limiter = limiter.expect("a store");
        println!("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a word");
        let end = tokio::time::Instant::now() + span;
        let callers: Vec<_> = (0..number_of(callers))
            .map(|_| {
                let bucket = limiter.bucket("fleet", policy.as_str()).expect("a policy");
                let (provider, number) = (provider.clone(), number.clone());
                tokio::spawn(async move {
                    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
                    socket.connect(&provider).await.expect("the provider");
                    let mut answer = [0; 8];
                    loop {
                        let permit = bucket.acquire().await.expect("the store answers");
                        let waited_us = permit.waited().as_micros();
                        permit.spend();
                        let jitter = Duration::from_micros(fastrand::u64(0..=JITTER_US));
                        tokio::time::sleep(jitter).await;
                        let call = format!("{number} {waited_us}");
                        socket.send(call.as_bytes()).await.expect("a call");
                        socket.recv(&mut answer).await.expect("an answer");
                    }
                })
            })
            .collect();
        tokio::time::sleep_until(end).await;
        println!("{}", limiter.stats().store_operations);
        for caller in callers {
            caller.abort();
        }
    });
}
