//! The provider that teaches: an HTTP server on a free loopback port, on a thread of its own so that
//! nothing else delays its judgement. It enforces one account's quota, tells of it in its dialect,
//! and keeps a record of every call. What else it is made to do is scripted: a limit that changes, a
//! second client, one refusal out of nowhere, a target that is always refused.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::sync::oneshot;

use super::dialect::Dialect;
use super::quota::{Counter, Quota};

/// Headers by which a worker tells who it is, and when the call went out, in microseconds since 1970.
pub(crate) const WORKER: &str = "x-worker";
pub(crate) const STARTED_US: &str = "x-started-us";
/// The target that is always refused, with nothing said.
pub(crate) const RETIRED: &str = "/retired";

/// Most time that a call takes to the provider, and as much its answer on the way back: what is told
/// of is not known at once.
const WAY_US: u64 = 20_000;

/// What the provider is made to do. Seconds count from its beginning, which is the first call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    pub(crate) quota: Quota,
    pub(crate) dialect: Dialect,
    /// When the limit changes, and to what.
    pub(crate) changes: Vec<(u64, i64)>,
    pub(crate) rival: Option<Rival>,
    /// The first call after so many seconds is refused, with a Retry-After of so many.
    pub(crate) once: Option<(u64, u64)>,
}

/// A second client, which nobody paces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rival {
    /// Of the quota as it is at the beginning.
    pub(crate) share: f64,
    /// All of an interval's calls at once, at a moment of its own; else one at a time, with random
    /// gaps.
    pub(crate) bursts: bool,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Refused,
    /// The refusal out of nowhere.
    Once,
    /// It was for the target that is always refused.
    Retired,
}

/// One call as it arrived, in microseconds from the beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at_us: i64,
    /// When it went out, by the caller's word.
    pub(crate) started_us: i64,
    /// `None` for the second client.
    pub(crate) worker: Option<usize>,
    pub(crate) verdict: Verdict,
}

/// The running server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Provider {
    addr: SocketAddr,
    age_us: i64,
    shared: Arc<Shared>,
    _running: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    judge: Mutex<Judge>,
}

#[derive(Debug)]
struct Judge {
    counter: Counter,
    /// The first call, on both clocks.
    began: Option<(Instant, i64)>,
    changes: Vec<(u64, i64)>,
    once: Option<(u64, u64)>,
    arrivals: Vec<Arrival>,
}

impl Provider {
    pub(crate) fn start(script: &Script) -> Self {
        let age_us = fastrand::i64(0..script.quota.interval_us);
        let judge = Judge {
            counter: Counter::new(script.quota, age_us),
            began: None,
            changes: script.changes.clone(),
            once: script.once,
            arrivals: Vec::new(),
        };
        let shared = Arc::new(Shared { script: script.clone(), judge: Mutex::new(judge) });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        listener.set_nonblocking(true).expect("a listener");
        let addr = listener.local_addr().expect("an address");
        let (running, ended) = oneshot::channel();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            crate::runtime().block_on(async {
                tokio::select! {
                    () = serve(listener, &serving) => {}
                    () = compete(&serving) => {}
                    _ = ended => {}
                }
            });
        });
        Self { addr, age_us, shared, _running: running }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How long before the first call its first window began.
    pub(crate) fn age_us(&self) -> i64 {
        self.age_us
    }

    /// All calls so far, in the order they were judged.
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.shared.judge().arrivals.clone()
    }
}

impl Shared {
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges a call of the fleet, and answers it.
    fn answer(&self, request: &Request<Incoming>) -> Response<Empty<Bytes>> {
        let number = |name| {
            let value: Option<&HeaderValue> = request.headers().get(name);
            value.and_then(|value| value.to_str().ok()?.parse::<i64>().ok()).unwrap_or(0)
        };
        let mut judge = self.judge();
        // Inside the lock, so that moments are counted in order.
        let unix_us = unix_us();
        let (began, began_unix) = *judge.began.get_or_insert((Instant::now(), unix_us));
        let at_us = since(began);
        judge.keep_up(at_us);
        let seconds = u64::try_from(at_us / 1_000_000).unwrap_or_default();
        let verdict = if request.uri().path() == RETIRED {
            Verdict::Retired
        } else if judge.once.is_some_and(|(at, _)| seconds >= at) {
            Verdict::Once
        } else if judge.counter.arrive(at_us) {
            Verdict::Accepted
        } else {
            Verdict::Refused
        };
        let standing = judge.counter.standing(at_us);
        let refused = verdict != Verdict::Accepted;
        let told = match verdict {
            Verdict::Retired => Vec::new(),
            Verdict::Once => {
                let span = judge.once.take().map_or(0, |(_, span)| span);
                vec![("retry-after", span.to_string())]
            }
            _ => self.script.dialect.headers(&standing, refused, unix_us),
        };
        judge.arrivals.push(Arrival {
            at_us,
            started_us: number(STARTED_US) - began_unix,
            worker: usize::try_from(number(WORKER)).ok(),
            verdict,
        });
        drop(judge);
        let mut headers = HeaderMap::new();
        for (name, value) in told {
            let value = value.parse().expect("our own words");
            headers.insert(HeaderName::from_static(name), value);
        }
        let mut response = Response::new(Empty::new());
        *response.headers_mut() = headers;
        if refused {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        }
        response
    }

    /// A call of the second client.
    fn rival_calls(&self, times: i64) {
        let mut judge = self.judge();
        let Some((began, _)) = judge.began else { return };
        let at_us = since(began);
        judge.keep_up(at_us);
        for _ in 0..times {
            let accepted = judge.counter.arrive(at_us);
            let verdict = if accepted { Verdict::Accepted } else { Verdict::Refused };
            judge.arrivals.push(Arrival { at_us, started_us: at_us, worker: None, verdict });
        }
    }
}

impl Judge {
    /// Makes the changes that are due.
    fn keep_up(&mut self, at_us: i64) {
        while let Some((seconds, limit)) = self.changes.first().copied()
            && i64::try_from(seconds * 1_000_000).is_ok_and(|due| at_us >= due)
        {
            self.counter.set_limit(limit, at_us);
            self.changes.remove(0);
        }
    }
}

async fn serve(listener: TcpListener, shared: &Arc<Shared>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    // Ends with a worker that can no longer connect, which it tells.
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let shared = Arc::clone(&shared);
                async move {
                    way().await;
                    let response = shared.answer(&request);
                    way().await;
                    Ok::<_, Infallible>(response)
                }
            });
            // A worker that goes away in the middle is not the provider's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn way() {
    tokio::time::sleep(Duration::from_micros(fastrand::u64(0..=WAY_US))).await;
}

/// The second client's calls, in process: they need no network to take from the same count.
async fn compete(shared: &Arc<Shared>) {
    let Some(Rival { share, bursts }) = shared.script.rival else {
        return std::future::pending().await;
    };
    let Quota { limit, interval_us, .. } = shared.script.quota;
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a share")]
    let each = (limit as f64 * share).round() as i64;
    let (times, mean_us) =
        if bursts { (each, interval_us) } else { (1, interval_us / each.max(1)) };
    let mut next = Instant::now();
    loop {
        // Bursts keep their rhythm and come somewhere in the middle half of it.
        let spread = if bursts { 0.5 + fastrand::f64() } else { 2.0 * fastrand::f64() };
        let mean = Duration::from_micros(u64::try_from(mean_us).unwrap_or(1));
        let at = next + mean.mul_f64(spread);
        next += if bursts { mean } else { mean.mul_f64(spread) };
        tokio::time::sleep_until(at.into()).await;
        shared.rival_calls(times);
    }
}

fn since(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX / 2)
}

pub(crate) fn unix_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX / 2)
}
