//! The strict provider: a thread that calls reach over UDP on loopback. Each tells when it left, by
//! the machine's clock, which all processes here share: on a loaded machine this thread may be late
//! to read many at once. What a window holds is counted afterwards.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// One call as it left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Since the run began.
    pub(crate) at: Duration,
    pub(crate) bucket: usize,
    pub(crate) worker: usize,
    pub(crate) caller: usize,
}

/// The running provider.
#[derive(Debug)]
pub(crate) struct Provider {
    addr: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Provider {
    pub(crate) fn start(began: SystemTime) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a loopback port");
        let addr = socket.local_addr().expect("an address");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let calls: Arc<Mutex<Vec<Call>>> = Arc::default();
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (calls, stopping) = (Arc::clone(&calls), Arc::clone(&stopping));
            move || serve(&socket, began, &calls, &stopping)
        });
        Self { addr, calls, stopping, thread: Some(thread) }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The calls until now, in the order they left.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone();
        calls.sort_by_key(|call| call.at);
        calls
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, began: SystemTime, calls: &Mutex<Vec<Call>>, stopping: &AtomicBool) {
    let mut packet = [0; 64];
    while !stopping.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
        let text = std::str::from_utf8(&packet[..length]).expect("our own words");
        let mut words = text.split(' ').map(|word| word.parse::<usize>().expect("a number"));
        let mut word = || words.next().expect("four words");
        let (worker, caller, bucket) = (word(), word(), word());
        let left_at = UNIX_EPOCH + Duration::from_micros(word() as u64);
        let at = left_at.duration_since(began).unwrap_or_default();
        let call = Call { at, worker, caller, bucket };
        calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        // A worker that was killed meanwhile does not hear it.
        let _ = socket.send_to(b"200", from);
    }
}
