//! A proxy that makes a store's clock run ahead or behind, as the decision inside it sees it.
//!
//! The script asks the server for the time unless its operation says which to take; that is meant
//! for replaying, and here it stands for the clock of a server that took over from another. It is
//! known to the proxy by the shape of its call, `EVALSHA sha 1 key operation ..`.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::loopback::Acceptor;

const OPERATIONS: [&[u8]; 8] =
    [b"take", b"batch", b"set", b"suspend", b"give_back", b"answered", b"resume", b"look"];
/// Where the operation stands in a command.
const OPERATION_AT: usize = 4;
/// Far above what any test sends; one command is held whole before it goes on.
const COMMAND_BYTES_MAX: usize = 16 << 20;
/// As many words as Redis itself takes.
const COMMAND_WORDS_MAX: usize = 1 << 20;
/// `$16777216` and its end, with room to spare.
const LENGTH_LINE_MAX: u64 = 32;

/// A proxy on a free loopback port in front of one server, whose clock it shifts for Paceline's
/// script and for nothing else. Starts without a shift; stops, and closes what goes through it,
/// when dropped. A client that sends anything but arrays of bulk strings is closed.
///
/// ```no_run
/// use paceline_testkit::{RedisServer, TimeShiftProxy};
///
/// let server = RedisServer::start();
/// let proxy = TimeShiftProxy::start(server.addr());
/// // From here on the store at `proxy.url()` lives two seconds in the past.
/// proxy.set(-2_000_000);
/// ```
#[derive(Debug)]
pub struct TimeShiftProxy {
    acceptor: Option<Acceptor>,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

impl TimeShiftProxy {
    /// Starts a proxy in front of `target`. The target need not be there yet: a connection that
    /// cannot be passed on is closed.
    ///
    /// # Panics
    /// When no loopback port can be had.
    #[track_caller]
    pub fn start(target: SocketAddr) -> TimeShiftProxy {
        let state = State { target, links: Vec::new(), threads: Vec::new() };
        let shared = Arc::new(Shared { shift_us: AtomicI64::new(0), state: Mutex::new(state) });
        let acceptor = Acceptor::start({
            let shared = Arc::clone(&shared);
            move |client| shared.connect(client)
        });
        TimeShiftProxy { addr: acceptor.addr(), acceptor: Some(acceptor), shared }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a store's URL without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// How many microseconds the script's clock is ahead of this machine's; negative when behind.
    /// Commands that reach the proxy after this has returned meet the new shift. At zero they go
    /// through as they are, and the script asks the server for the time.
    pub fn set(&self, shift_us: i64) {
        self.shared.shift_us.store(shift_us, Ordering::SeqCst);
    }

    /// Passes new connections on to another server; those there are stay where they are.
    pub fn retarget(&self, target: SocketAddr) {
        self.shared.lock().target = target;
    }

    /// Closes every connection there is.
    pub fn cut_connections(&self) {
        self.shared.lock().cut();
    }
}

impl Drop for TimeShiftProxy {
    fn drop(&mut self) {
        drop(self.acceptor.take());
        let threads = {
            let mut state = self.shared.lock();
            state.cut();
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            let _ = thread.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    shift_us: AtomicI64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    links: Vec<Arc<Link>>,
    threads: Vec<JoinHandle<()>>,
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
}

impl Link {
    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: TcpStream) {
        let target = self.lock().target;
        let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else {
            return;
        };
        if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
            return;
        }
        let link = Arc::new(Link { client, server });
        let mut state = self.lock();
        state.links.push(Arc::clone(&link));
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(std::thread::spawn({
            let (shared, link) = (Arc::clone(self), Arc::clone(&link));
            move || shared.pass_commands(&link)
        }));
        let shared = Arc::clone(self);
        state.threads.push(std::thread::spawn(move || shared.pass_replies(&link)));
    }

    fn pass_commands(&self, link: &Link) {
        let mut from = BufReader::new(&link.client);
        let mut pass = || -> io::Result<()> {
            while let Some(command) = Command::read(&mut from)? {
                let shift_us = self.shift_us.load(Ordering::SeqCst);
                (&link.server).write_all(&command.shifted(shift_us, now_us()))?;
            }
            Ok(())
        };
        match pass() {
            // The client may still be reading what it has asked for.
            Ok(()) => drop(link.server.shutdown(Shutdown::Write)),
            Err(_) => link.close(),
        }
    }

    fn pass_replies(&self, link: &Arc<Link>) {
        let _ = io::copy(&mut &link.server, &mut &link.client);
        link.close();
        self.lock().links.retain(|other| !Arc::ptr_eq(other, link));
    }
}

/// One command as it came, and where its first words are in it.
struct Command {
    bytes: Vec<u8>,
    /// Each with the line of its length and its end.
    spans: Vec<Range<usize>>,
    words: Vec<Range<usize>>,
}

impl Command {
    /// None at the end of the connection.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Command>> {
        if from.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let mut command = Command { bytes: Vec::new(), spans: Vec::new(), words: Vec::new() };
        let bytes = &mut command.bytes;
        let count = read_length(from, b'*', bytes)?;
        if count > COMMAND_WORDS_MAX {
            return Err(malformed());
        }
        for i in 0..count {
            let start = bytes.len();
            let length = read_length(from, b'$', bytes)?;
            let word = bytes.len()..bytes.len().saturating_add(length);
            if word.end > COMMAND_BYTES_MAX {
                return Err(malformed());
            }
            // Grows with what comes rather than by what is promised.
            let read = from.by_ref().take(length as u64 + 2).read_to_end(bytes)?;
            if read < length + 2 || !bytes.ends_with(b"\r\n") {
                return Err(malformed());
            }
            if i <= OPERATION_AT {
                command.spans.push(start..bytes.len());
                command.words.push(word);
            }
        }
        Ok(Some(command))
    }

    /// The bytes to be passed on: those that came, but for the operation of our script.
    fn shifted(self, shift_us: i64, now_us: i64) -> Vec<u8> {
        let word = |i: usize| self.words.get(i).map(|word| &self.bytes[word.clone()]);
        let is_ours = word(0).is_some_and(|name| name.eq_ignore_ascii_case(b"EVALSHA"))
            && word(2) == Some(b"1");
        let operation = word(OPERATION_AT).filter(|word| OPERATIONS.contains(word));
        let Some(operation) = operation.filter(|_| is_ours && shift_us != 0) else {
            return self.bytes;
        };
        let mut at = operation.to_vec();
        at.extend(format!("@{}", now_us.saturating_add(shift_us).max(0)).bytes());
        let span = self.spans[OPERATION_AT].clone();
        let head = format!("${}\r\n", at.len());
        let (before, after) = (&self.bytes[..span.start], &self.bytes[span.end..]);
        [before, head.as_bytes(), &at, b"\r\n", after].concat()
    }
}

/// Reads `*3` or `$12` and the end of the line.
fn read_length(from: &mut impl BufRead, kind: u8, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let start = bytes.len();
    from.by_ref().take(LENGTH_LINE_MAX).read_until(b'\n', bytes)?;
    let digits = bytes[start..].strip_prefix(&[kind]).and_then(|line| line.strip_suffix(b"\r\n"));
    let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let length = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    length.ok_or_else(malformed)
}

fn malformed() -> Error {
    Error::new(ErrorKind::InvalidData, "not an array of bulk strings, or one too large")
}

fn now_us() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros().try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[track_caller]
    fn passes(words: &[&[u8]], shift_us: i64, want: &[&[u8]]) {
        let bytes = wire(words);
        let mut from = bytes.as_slice();
        let command = Command::read(&mut from).unwrap().unwrap();
        assert_eq!(command.shifted(shift_us, 1_000), wire(want));
        assert!(Command::read(&mut from).unwrap().is_none());
    }

    #[track_caller]
    fn passes_as_it_is(words: &[&[u8]]) {
        passes(words, 5, words);
    }

    #[test]
    fn the_operation_of_our_script_takes_the_shifted_time() {
        let packed = b"\0\r\n\xff";
        for (shift_us, at) in [(5, "@1005"), (-300, "@700"), (-2_000, "@0"), (0, "")] {
            for operation in OPERATIONS {
                let shifted = [operation, at.as_bytes()].concat();
                passes(
                    &[b"evalsha", b"5ha", b"1", b"key", operation, packed],
                    shift_us,
                    &[b"evalsha", b"5ha", b"1", b"key", &shifted, packed],
                );
            }
        }
        passes(
            &[b"EVALSHA", b"5ha", b"1", b"take", b"look"],
            1,
            &[b"EVALSHA", b"5ha", b"1", b"take", b"look@1001"],
        );
    }

    #[test]
    fn all_else_is_as_it_was() {
        passes_as_it_is(&[]);
        passes_as_it_is(&[b"PING"]);
        passes_as_it_is(&[b"EVALSHA", b"5ha", b"0"]);
        passes_as_it_is(&[b"EVALSHA", b"5ha", b"2", b"key", b"take", b"x"]);
        passes_as_it_is(&[b"EVALSHA", b"5ha", b"1", b"key", b"take@7", b"x"]);
        passes_as_it_is(&[b"EVALSHA", b"5ha", b"1", b"key", b"other", b"take"]);
        passes_as_it_is(&[b"RPUSH", b"list", b"1", b"key", b"take"]);
        passes_as_it_is(&[b"SET", b"k", b"\xff\0\r\n$3\r\n"]);
    }

    #[test]
    fn what_is_not_a_command_is_refused() {
        for bytes in [
            "PING\r\n",
            "*1\r\n",
            "*1\r\n$4\r\nPI",
            "*1\r\n$4\r\nPINGxx",
            "*1\n$4\nPING\n",
            "*-1\r\n",
            "*+1\r\n$4\r\nPING\r\n",
            "*\r\n",
            "*1\r\n:4\r\n",
            "*1\r\n$-1\r\n",
            "*1048577\r\n",
            "*1\r\n$16777217\r\n",
            "*1\r\n$99999999999999999999\r\n",
            "*000000000000000000000000000000000001\r\n",
        ] {
            assert!(Command::read(&mut bytes.as_bytes()).is_err(), "{bytes:?} was read");
        }
    }
}
