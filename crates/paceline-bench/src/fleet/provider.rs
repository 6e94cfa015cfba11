//! The strict provider of a fleet: a thread that judges calls as they arrive over UDP.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What it lets pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    pub(crate) limit: usize,
    pub(crate) interval: Duration,
    /// Counts windows that begin at a hidden moment; else any span of the interval.
    pub(crate) fixed: bool,
}

/// One call as the provider saw it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) worker: usize,
    pub(crate) waited_us: u64,
    pub(crate) accepted: bool,
}

/// The running provider. Each bucket has a quota of its own.
pub(crate) struct Provider {
    addr: SocketAddr,
    stop: mpsc::Sender<()>,
    judge: JoinHandle<Vec<Arrival>>,
}

impl Provider {
    pub(crate) fn start(quota: Quota, buckets: usize) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port");
        let addr = socket.local_addr().expect("an address");
        let (stop, stopped) = mpsc::channel();
        let judge = std::thread::spawn(move || judge(&socket, quota, buckets, &stopped));
        Self { addr, stop, judge }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops it; all calls that arrived.
    pub(crate) fn stop(self) -> Vec<Arrival> {
        self.stop.send(()).expect("the judge listens");
        self.judge.join().expect("the judge")
    }
}

/// What one bucket's calls are counted by.
struct Counting {
    log: VecDeque<Instant>,
    window: u64,
    count: usize,
}

impl Counting {
    fn accepts(&mut self, quota: Quota, at: Instant, began: Instant) -> bool {
        let Quota { limit, interval, fixed } = quota;
        if fixed {
            let now = ((at - began).as_nanos() / interval.as_nanos()) as u64;
            if now > self.window {
                (self.window, self.count) = (now, 0);
            }
            // A call beyond the limit bars the rest of its window.
            self.count += if self.count < limit { 1 } else { limit };
            return self.count <= limit;
        }
        while self.log.front().is_some_and(|oldest| at - *oldest >= interval) {
            self.log.pop_front();
        }
        let room = self.log.len() < limit;
        if room {
            self.log.push_back(at);
        }
        room
    }
}

fn judge(
    socket: &UdpSocket,
    quota: Quota,
    buckets: usize,
    stopped: &mpsc::Receiver<()>,
) -> Vec<Arrival> {
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
    // When its windows begin is its secret.
    let began = Instant::now() - quota.interval.mul_f64(fastrand::f64());
    let counting = || Counting { log: VecDeque::new(), window: 0, count: 0 };
    let mut countings: Vec<Counting> = (0..buckets).map(|_| counting()).collect();
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
        let text = std::str::from_utf8(&packet[..length]).expect("our own words");
        let mut words = text.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        let mut word = || words.next().expect("three words");
        let (worker, bucket, waited_us) = (word() as usize, word() as usize, word());
        let accepted = countings[bucket].accepts(quota, at, began);
        arrivals.push(Arrival { at, worker, waited_us, accepted });
        // A worker that has ended meanwhile does not hear it.
        let _ = socket.send_to(if accepted { b"200" } else { b"429" }, from);
    }
}
