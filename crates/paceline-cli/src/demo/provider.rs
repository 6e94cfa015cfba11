//! The strict provider: an HTTP server on a free loopback port, on a thread of its own so that
//! nothing else delays its judgement. It answers 200 within its quota and 429 beyond, and keeps a
//! record of every call.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use paceline_sim::{Provider as Counting, ProviderSpec};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Headers by which a worker tells of itself.
pub(super) const WORKER: &str = "x-worker";
pub(super) const WAITED_US: &str = "x-waited-us";
pub(super) const STORE_OPERATIONS: &str = "x-store-operations";

/// One call as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Since the provider was started.
    pub(super) at: Duration,
    pub(super) allowed: bool,
    pub(super) worker: u64,
    /// What the permit was waited for.
    pub(super) waited: Duration,
    /// What the worker had asked of the store until then.
    pub(super) operations: u64,
}

/// The running server. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Provider {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _running: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    judge: Mutex<Judge>,
}

#[derive(Debug)]
struct Judge {
    counting: Counting,
    records: Vec<Record>,
    workers: HashSet<u64>,
}

impl Provider {
    pub(super) fn start(spec: &ProviderSpec) -> std::io::Result<Self> {
        // When its windows begin is the provider's secret.
        let age_us = fastrand::i64(0..spec.interval_us());
        let judge = Judge {
            counting: Counting::new(spec, age_us),
            records: Vec::new(),
            workers: HashSet::new(),
        };
        let shared = Arc::new(Shared { started: Instant::now(), judge: Mutex::new(judge) });
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let (running, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serving = Arc::clone(&shared);
        std::thread::Builder::new().name("provider".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, serving) => {}
                    _ = ended => {}
                }
            });
        })?;
        Ok(Self { addr, shared, _running: running })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Time since it was started, as in its records.
    pub(super) fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    pub(super) fn calls(&self) -> usize {
        self.shared.judge().records.len()
    }

    pub(super) fn refused(&self) -> u64 {
        self.shared.judge().counting.refused()
    }

    pub(super) fn workers_seen(&self) -> usize {
        self.shared.judge().workers.len()
    }

    pub(super) fn records(&self) -> Vec<Record> {
        self.shared.judge().records.clone()
    }
}

impl Shared {
    fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Judges one call; in how long one would pass, where this one may not.
    fn arrive(&self, headers: &HeaderMap) -> Result<(), Duration> {
        let number = |name| {
            headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0)
        };
        let mut judge = self.judge();
        // Inside the lock, so that the counting sees the moments in order.
        let at = self.started.elapsed();
        let verdict = judge.counting.arrive(i64::try_from(at.as_micros()).unwrap_or(i64::MAX / 2));
        let worker = number(WORKER);
        judge.records.push(Record {
            at,
            allowed: verdict.is_ok(),
            worker,
            waited: Duration::from_micros(number(WAITED_US)),
            operations: number(STORE_OPERATIONS),
        });
        judge.workers.insert(worker);
        verdict.map_err(Duration::from_micros)
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    // Ends when a worker can no longer connect, which the worker then tells.
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let verdict = shared.arrive(request.headers());
                async move { Ok::<_, Infallible>(answer(verdict)) }
            });
            // A worker that goes away in the middle is not the provider's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

fn answer(verdict: Result<(), Duration>) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    if let Err(wait) = verdict {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}
