//! A server that speaks RESP and says what it is told to: too old, read only, or nonsense.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::loopback::Acceptor;
use crate::resp;

/// A fake server on a free loopback port. Stops when dropped.
///
/// ```
/// use paceline_testkit::ScriptedServer;
///
/// let server = ScriptedServer::start(|command| match command[0].as_str() {
///     "EVALSHA" => Some("-ERR unknown command 'EVALSHA'\r\n".into()),
///     "QUIT" => None,
///     _ => Some("+OK\r\n".into()),
/// });
/// assert!(server.url().starts_with("redis://127.0.0.1:"));
/// ```
#[derive(Debug)]
pub struct ScriptedServer {
    acceptor: Option<Acceptor>,
    addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    commands: Vec<Vec<String>>,
    connections_total: u64,
    streams: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl ScriptedServer {
    /// Starts a server that answers every command (its name first, as the client spelled it) with
    /// the raw RESP that `answer` returns, and closes the connection on None. A client library
    /// greets with commands of its own (`CLIENT SETINFO`, `HELLO`); `answer` hears those too.
    ///
    /// # Panics
    /// When no loopback port can be had.
    #[track_caller]
    pub fn start(answer: impl Fn(&[String]) -> Option<String> + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let acceptor = Acceptor::start({
            let seen = Arc::clone(&seen);
            move |stream| {
                let Ok(kept) = stream.try_clone() else { return };
                let thread = std::thread::spawn({
                    let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                    move || serve(&stream, answer.as_ref(), &seen)
                });
                let mut seen = lock(&seen);
                seen.connections_total += 1;
                seen.streams.push(kept);
                seen.threads.push(thread);
            }
        });
        ScriptedServer { addr: acceptor.addr(), acceptor: Some(acceptor), seen }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where it listens, as a store's URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Every command heard so far, over all connections, in order.
    pub fn commands(&self) -> Vec<Vec<String>> {
        lock(&self.seen).commands.clone()
    }

    /// How many connections were ever made.
    pub fn connections_total(&self) -> u64 {
        lock(&self.seen).connections_total
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        drop(self.acceptor.take());
        let (streams, threads) = {
            let mut seen = lock(&self.seen);
            (std::mem::take(&mut seen.streams), std::mem::take(&mut seen.threads))
        };
        for stream in streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Answers one connection until either side is done with it.
fn serve(stream: &TcpStream, answer: &dyn Fn(&[String]) -> Option<String>, seen: &Mutex<Seen>) {
    let mut from = BufReader::new(stream);
    let mut to = stream;
    while let Ok(Some(command)) = resp::read_command(&mut from) {
        let reply = answer(&command);
        lock(seen).commands.push(command);
        match reply {
            Some(reply) if to.write_all(reply.as_bytes()).is_ok() => {}
            _ => break,
        }
    }
    // The copy kept for stopping would hold the connection open; the client is to see it close.
    let _ = stream.shutdown(Shutdown::Both);
}

/// A panicking closure poisons nothing that matters here: counts and lists stay whole.
fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
