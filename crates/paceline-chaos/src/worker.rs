//! A worker process, as a user's program would be: callers that want a permit, call, and begin
//! again; after an error they rest a moment. One more task asks for a decision every 20 ms and
//! notes how long the longest took.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use paceline::{Answer, Error, Limiter};
use rustix::process::{Pid, Signal, kill_process};

use crate::plan::{BUCKETS, CALLERS};

/// The hidden first word of a worker.
pub(crate) const WORD: &str = "chaos-worker";
/// What one operation may take.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(250);

/// A worker as its starter holds it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    stdin: Option<ChildStdin>,
}

/// What a worker tells at its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// Decisions that the store did not answer.
    pub(crate) unavailable: u64,
    /// Errors of any other kind; there should be none.
    pub(crate) other_errors: u64,
    pub(crate) longest_decision: Duration,
}

impl Worker {
    pub(crate) fn start(number: usize, url: &str, policy: &str, provider: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([WORD, &number.to_string(), url, policy, provider]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = piped.expect("a worker starts");
        let stdin = child.stdin.take();
        Self { child, stdin }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a worker that runs");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a worker that runs");
        self.child.wait().expect("a worker that ends");
    }

    /// Asks it to end, and hears what it tells; `None` where it says nothing sensible.
    pub(crate) fn end(mut self) -> Option<Told> {
        drop(self.stdin.take());
        let output = self.child.wait_with_output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        let mut word = || words.next().flatten();
        let (unavailable, other_errors, longest_us) = (word()?, word()?, word()?);
        Some(Told {
            unavailable,
            other_errors,
            longest_decision: Duration::from_micros(longest_us),
        })
    }
}

#[derive(Debug, Default)]
struct Counts {
    unavailable: AtomicU64,
    other_errors: AtomicU64,
    longest_us: AtomicU64,
}

impl Counts {
    /// Counts an error; its caller rests a moment, as a program that logs it and goes on.
    async fn failed(&self, error: &Error) {
        if error.is_unavailable() {
            self.unavailable.fetch_add(1, Ordering::Relaxed);
        } else if self.other_errors.fetch_add(1, Ordering::Relaxed) == 0 {
            eprintln!("worker: {error}");
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(20..60))).await;
    }
}

/// What a worker process does until its stdin ends.
pub(crate) fn main(words: &[String]) {
    let [number, url, policy, provider] = words else { panic!("four words: {words:?}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let counts: Arc<Counts> = Arc::default();
    runtime.expect("a runtime").block_on(async {
        let limiter = Limiter::builder(url).timeout(TIMEOUT).open().await.expect("a store");
        let mut tasks = Vec::new();
        for caller in 0..CALLERS {
            let which = caller % BUCKETS.len();
            let bucket = limiter.bucket(BUCKETS[which], policy.as_str()).expect("a policy");
            let call = format!("{number} {caller} {which}");
            let (counts, provider) = (Arc::clone(&counts), provider.clone());
            tasks.push(tokio::spawn(async move {
                let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
                socket.connect(&provider).await.expect("the provider");
                let mut answer = [0; 8];
                loop {
                    match bucket.acquire().await {
                        Ok(permit) => {
                            permit.spend();
                            let left_at = UNIX_EPOCH.elapsed().expect("a clock past 1970");
                            let call = format!("{call} {}", left_at.as_micros());
                            socket.send(call.as_bytes()).await.expect("a call");
                            socket.recv(&mut answer).await.expect("an answer");
                        }
                        Err(error) => counts.failed(&error).await,
                    }
                }
            }));
        }
        let probe = limiter.bucket("probe", "100000/s").expect("a policy");
        let counted = Arc::clone(&counts);
        tasks.push(tokio::spawn(async move {
            loop {
                let asked = Instant::now();
                let answer = probe.try_acquire().await;
                let took = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
                counted.longest_us.fetch_max(took, Ordering::Relaxed);
                match answer {
                    Ok(Answer::Granted(permit)) => permit.spend(),
                    Ok(Answer::Refused(_)) => {}
                    Err(error) => counted.failed(&error).await,
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }));
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // Nothing comes; it ends when the starter says so, or is gone.
            let _ = std::io::stdin().read_line(&mut String::new());
            let _ = ended.send(());
        });
        let _ = end.await;
        for task in tasks {
            task.abort();
        }
    });
    let told = [&counts.unavailable, &counts.other_errors, &counts.longest_us];
    let [unavailable, other, longest_us] = told.map(|count| count.load(Ordering::Relaxed));
    // Who started it may have gone.
    let _ = writeln!(std::io::stdout(), "{unavailable} {other} {longest_us}");
}
