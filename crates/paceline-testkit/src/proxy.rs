//! A TCP proxy on the loopback that misbehaves on request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::loopback::Acceptor;

/// How often an idle direction looks whether what it holds back may go on.
const TICK: Duration = Duration::from_millis(10);
/// What one stalled direction takes in before it leaves the rest to the kernel's buffers.
const HELD_BYTES_MAX: usize = 1 << 20;

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
        if mode == Mode::Cut {
            state.cut();
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

/// One client and its connection to the target.
#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: TcpStream,
    client_left: AtomicBool,
    closed: AtomicBool,
}

impl Link {
    fn connected(&self) -> bool {
        !self.client_left.load(Ordering::SeqCst) && !self.closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
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
        for stream in [&client, &server] {
            // Without a read timeout a direction could not let go what it held back.
            if stream.set_nodelay(true).is_err() || stream.set_read_timeout(Some(TICK)).is_err() {
                return;
            }
        }
        let link = Arc::new(Link {
            client,
            server,
            client_left: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        });
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
            state.threads.push(std::thread::spawn(move || shared.pump(&link, direction)));
        }
    }

    fn turned_away(&self) -> bool {
        let mut state = self.lock();
        let away = matches!(state.mode, Mode::Cut | Mode::Refuse);
        state.refused_total += u64::from(away);
        away
    }

    /// Moves bytes one way until that way is over.
    fn pump(&self, link: &Arc<Link>, direction: Direction) {
        let (mut from, mut to) = match direction {
            Direction::Up => (&link.client, &link.server),
            Direction::Down => (&link.server, &link.client),
        };
        let mut chunk = vec![0; 16 << 10];
        let mut held = Vec::new();
        loop {
            let over = held.len() < HELD_BYTES_MAX
                && match from.read(&mut chunk) {
                    Ok(0) => true,
                    Ok(n) => {
                        held.extend_from_slice(&chunk[..n]);
                        false
                    }
                    Err(e) => !matches!(
                        e.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ),
                };
            if over && direction == Direction::Up {
                link.client_left.store(true, Ordering::SeqCst);
            }
            let wait = over || held.len() >= HELD_BYTES_MAX;
            match self.mode_for(link, wait) {
                Mode::Stall => continue,
                Mode::SwallowReplies if direction == Direction::Down => held.clear(),
                _ => {
                    // Counted before it is sent: who has the answer finds its request counted.
                    if direction == Direction::Up {
                        self.bytes_up.fetch_add(held.len() as u64, Ordering::SeqCst);
                    }
                    if to.write_all(&held).is_err() {
                        break;
                    }
                    held.clear();
                }
            }
            if over {
                break;
            }
        }
        match direction {
            // The client may still be reading what it has asked for.
            Direction::Up => drop(to.shutdown(Shutdown::Write)),
            Direction::Down => {
                link.close();
                self.lock().links.retain(|other| !Arc::ptr_eq(other, link));
            }
        }
    }

    /// The mode now; if told to wait, the mode that ends a stall. A closed link stalls no more:
    /// writing to it fails, which ends its directions.
    fn mode_for(&self, link: &Link, wait: bool) -> Mode {
        let mut state = self.lock();
        while wait && state.mode == Mode::Stall && !link.closed.load(Ordering::SeqCst) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if link.closed.load(Ordering::SeqCst) { Mode::Cut } else { state.mode }
    }
}
