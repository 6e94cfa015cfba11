//! A TCP proxy on the loopback that misbehaves on request.

mod link;

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::loopback::Acceptor;
use link::{Direction, Link};

/// What the proxy does with bytes and with new connections. Bytes and connections that reach it
/// after [`FaultProxy::set`] has returned meet the new mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All goes through.
    Pass,
    /// Requests go through, answers are thrown away: the work is done and nobody hears of it.
    SwallowReplies,
    /// Nothing goes through either way and nothing is closed, as on a network that drops packets.
    /// What was held back goes on, in order, when another mode lets it: late, not lost, even if
    /// the client has given up meanwhile.
    Stall,
    /// All goes through, both ways, and each piece of it this much later than it came, in order: a
    /// far server rather than a narrow wire, up to a megabyte under way each way. Connections are
    /// made at once. What was on its way when another mode is set goes by that mode.
    Delay(Duration),
    /// The server's side of each connection there is is closed and the client is not told, as when
    /// its machine is gone: what it sends goes nowhere, in later modes as well, until it leaves or
    /// is cut. New connections go through.
    HalfOpen,
    /// Every connection is closed at once, and each new one as soon as it is made.
    Cut,
    /// Connections there are go on; each new one is closed as soon as it is made. (A port where
    /// nobody listens is had by [`crate::RedisServer::kill`].)
    Refuse,
}

/// A proxy on a free loopback port in front of one address. Starts in [`Mode::Pass`]; stops, and
/// closes what goes through it, when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    acceptor: Option<Acceptor>,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// Starts a proxy in front of `target`. The target need not be there yet: a connection that
    /// cannot be passed on is closed.
    ///
    /// # Panics
    /// When no loopback port can be had.
    #[track_caller]
    pub fn start(target: SocketAddr) -> FaultProxy {
        let shared = Arc::new(Shared::default());
        let acceptor = Acceptor::start({
            let shared = Arc::clone(&shared);
            move |client| shared.connect(client, target)
        });
        FaultProxy { addr: acceptor.addr(), acceptor: Some(acceptor), shared }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a store's URL without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Changes the mode for connections there are and for new ones.
    pub fn set(&self, mode: Mode) {
        let mut state = self.shared.lock();
        state.mode = mode;
        match mode {
            Mode::Cut => state.cut(),
            Mode::HalfOpen => state.links.iter().for_each(|link| link.lose_server()),
            _ => {}
        }
        self.shared.changed.notify_all();
    }

    /// Closes every connection there is, and leaves the mode as it is.
    pub fn cut_connections(&self) {
        self.shared.lock().cut();
        self.shared.changed.notify_all();
    }

    /// How many connections were ever let in.
    pub fn connections_total(&self) -> u64 {
        self.shared.lock().connections_total
    }

    /// How many clients are connected now.
    pub fn connections_now(&self) -> usize {
        self.shared.lock().links.iter().filter(|link| link.connected()).count()
    }

    /// How many connections were turned away by [`Mode::Cut`] or [`Mode::Refuse`].
    pub fn refused_total(&self) -> u64 {
        self.shared.lock().refused_total
    }

    /// How many bytes were passed on to the target.
    pub fn bytes_up(&self) -> u64 {
        self.shared.bytes_up.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.set(Mode::Cut);
        drop(self.acceptor.take());
        let threads = {
            let mut state = self.shared.lock();
            state.cut();
            std::mem::take(&mut state.threads)
        };
        self.shared.changed.notify_all();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bytes_up: AtomicU64,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    connections_total: u64,
    refused_total: u64,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
}

impl Default for State {
    fn default() -> State {
        State {
            mode: Mode::Pass,
            connections_total: 0,
            refused_total: 0,
            links: Vec::new(),
            threads: Vec::new(),
        }
    }
}

impl State {
    fn cut(&mut self) {
        for link in self.links.drain(..) {
            link.close();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream, target: SocketAddr) {
        // Asked before connecting, so that a refused client costs the target nothing; asked again
        // after, because the mode may have changed meanwhile.
        if self.turned_away() {
            return;
        }
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else {
            return;
        };
        let Some(link) = Link::new(client, server).map(Arc::new) else { return };
        let mut state = self.lock();
        if matches!(state.mode, Mode::Cut | Mode::Refuse) {
            state.refused_total += 1;
            return;
        }
        state.connections_total += 1;
        state.links.push(Arc::clone(&link));
        state.threads.retain(|thread| !thread.is_finished());
        for direction in [Direction::Up, Direction::Down] {
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            state.threads.push(std::thread::spawn(move || link.pump(direction, &shared)));
        }
    }

    fn turned_away(&self) -> bool {
        let mut state = self.lock();
        let away = matches!(state.mode, Mode::Cut | Mode::Refuse);
        state.refused_total += u64::from(away);
        away
    }

    /// Waits for another mode, or as long as this.
    fn wait(&self, max: Duration) {
        let changed = self.changed.wait_timeout(self.lock(), max);
        drop(changed.unwrap_or_else(PoisonError::into_inner));
    }
}
