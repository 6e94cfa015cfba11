//! Loopback ports, and a listener with a thread that accepts, for the servers of this kit.

use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Below what Linux hands out by itself (32768 and up): else the port of a server that is down for
/// a while could become the near end of somebody's connection.
const PORT_MIN: u64 = 10_000;
const PORTS: u64 = 20_000;

/// A loopback port on which nobody listens. No other call in this process is given the same one,
/// so a connection to it is refused until the caller has somebody listen there.
///
/// # Panics
/// When every port is taken.
#[track_caller]
pub fn free_port() -> u16 {
    bind().local_addr().expect("a bound listener has an address").port()
}

/// Hands each connection to a closure, on one thread and in order, until it is dropped.
#[derive(Debug)]
pub(crate) struct Acceptor {
    addr: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    #[track_caller]
    pub(crate) fn start(mut on_connection: impl FnMut(TcpStream) + Send + 'static) -> Acceptor {
        let listener = bind();
        let addr = listener.local_addr().expect("a bound listener has an address");
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let stopping = Arc::clone(&stopping);
            move || {
                for connection in listener.incoming() {
                    if stopping.load(Ordering::SeqCst) {
                        return;
                    }
                    match connection {
                        Ok(connection) => on_connection(connection),
                        // Out of descriptors, or a client gone before it was taken: the next may
                        // do better, and a short rest keeps this from being a busy loop.
                        Err(_) => std::thread::sleep(Duration::from_millis(5)),
                    }
                }
            }
        });
        Acceptor { addr, stopping, thread: Some(thread) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // A blocked accept has no other way to hear of it than one more connection. Where that
        // cannot be made, joining could wait for ever, so the thread is left to end with the test.
        let woken = TcpStream::connect_timeout(&self.addr, Duration::from_secs(5)).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

/// Listens on the next port of a walk through them all, which each process starts elsewhere.
#[track_caller]
fn bind() -> TcpListener {
    static NEXT: LazyLock<AtomicU64> =
        LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0) % PORTS));
    for _ in 0..PORTS {
        let port = PORT_MIN + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port as u16)) {
            return listener;
        }
    }
    panic!("no loopback port from {PORT_MIN} on is free");
}
