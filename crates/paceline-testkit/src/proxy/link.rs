//! One client's connection through the proxy: what is held back of it, and what ends it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Mode, Shared};

/// How often an idle direction looks whether what it holds back may go on.
const TICK: Duration = Duration::from_millis(10);
/// What one direction holds back before it leaves the rest to the kernel's buffers.
const HELD_BYTES_MAX: usize = 1 << 20;

/// One client and its connection to the target.
#[derive(Debug)]
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    client_left: AtomicBool,
    server_lost: AtomicBool,
    closed: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Link {
    /// None where one of the two is gone already.
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Option<Link> {
        client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok()?;
        let no = || AtomicBool::new(false);
        Some(Link { client, server, client_left: no(), server_lost: no(), closed: no() })
    }

    pub(super) fn connected(&self) -> bool {
        !is(&self.client_left) && !is(&self.closed)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Closes the server's side alone. The client's stays open, and nothing comes of it.
    pub(super) fn lose_server(&self) {
        self.server_lost.store(true, Ordering::SeqCst);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Moves bytes one way until that way is over.
    pub(super) fn pump(self: &Arc<Link>, direction: Direction, shared: &Shared) {
        self.pass_on(direction, shared);
        let server_lost = is(&self.server_lost);
        match direction {
            // The client may still be reading what it has asked for.
            Direction::Up if !server_lost => drop(self.server.shutdown(Shutdown::Write)),
            // The client is not told, and its own direction ends when it leaves.
            Direction::Down if server_lost && self.connected() => {}
            _ => {
                self.close();
                shared.lock().links.retain(|other| !Arc::ptr_eq(other, self));
            }
        }
    }

    fn pass_on(&self, direction: Direction, shared: &Shared) {
        let (mut from, mut to) = match direction {
            Direction::Up => (&self.client, &self.server),
            Direction::Down => (&self.server, &self.client),
        };
        let mut buffer = vec![0; 16 << 10];
        let mut held = Held::default();
        let mut wait = TICK;
        loop {
            if held.ended || held.bytes >= HELD_BYTES_MAX {
                shared.wait(wait);
            } else if is_readable(from, wait) {
                match from.read(&mut buffer) {
                    Ok(n @ 1..) => held.push(&buffer[..n]),
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => {
                        if direction == Direction::Up {
                            self.client_left.store(true, Ordering::SeqCst);
                        }
                        held.end();
                    }
                }
            }
            if is(&self.server_lost) {
                if direction == Direction::Down || held.ended {
                    return;
                }
                held = Held::default();
                continue;
            }
            // A closed link holds nothing back: writing to it fails, which is its end.
            let mode = if is(&self.closed) { Mode::Cut } else { shared.lock().mode };
            while let Some(chunk) = held.take_due(mode) {
                if chunk.is_empty() {
                    return;
                }
                if mode == Mode::SwallowReplies && direction == Direction::Down {
                    continue;
                }
                // Counted before it is sent: who has the answer finds its request counted.
                if direction == Direction::Up {
                    shared.bytes_up.fetch_add(chunk.len() as u64, Ordering::SeqCst);
                }
                if to.write_all(&chunk).is_err() {
                    // Lost amid the write: the client is not told, and is to be heard out.
                    if direction == Direction::Up && is(&self.server_lost) {
                        break;
                    }
                    return;
                }
            }
            wait = held.due_in(mode).map_or(TICK, |due_in| due_in.min(TICK));
        }
    }
}

/// What has been taken in and not passed on, in order, and when each of it came.
#[derive(Default)]
struct Held {
    /// The end of the stream is an empty chunk, which is held back like the others.
    chunks: VecDeque<(Instant, Vec<u8>)>,
    bytes: usize,
    ended: bool,
}

impl Held {
    fn push(&mut self, chunk: &[u8]) {
        self.bytes += chunk.len();
        self.chunks.push_back((Instant::now(), chunk.to_vec()));
    }

    fn end(&mut self) {
        self.ended = true;
        self.chunks.push_back((Instant::now(), Vec::new()));
    }

    /// How long the first of it is still to be held back; None while nothing says when it may go.
    fn due_in(&self, mode: Mode) -> Option<Duration> {
        let (came, _) = self.chunks.front()?;
        match mode {
            Mode::Stall => None,
            Mode::Delay(delay) => Some(delay.saturating_sub(came.elapsed())),
            _ => Some(Duration::ZERO),
        }
    }

    fn take_due(&mut self, mode: Mode) -> Option<Vec<u8>> {
        let due = self.due_in(mode)?.is_zero();
        let (_, chunk) = due.then(|| self.chunks.pop_front()).flatten()?;
        self.bytes -= chunk.len();
        Some(chunk)
    }
}

/// Waits until a read would not block. Finer than a socket's own timeout, which goes by the
/// kernel's ticks of some milliseconds: too coarse for a delay of one.
fn is_readable(stream: &TcpStream, wait: Duration) -> bool {
    let wait = Timespec { tv_sec: 0, tv_nsec: wait.min(TICK).subsec_nanos().into() };
    poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&wait)).is_ok_and(|ready| ready > 0)
}

fn is(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst)
}
