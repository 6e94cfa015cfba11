//! A real `redis-server`, one per test, with nothing of it left behind.
//!
//! The kit's own commands go over a Unix socket in the server's folder. So they work alike with
//! TLS, they cannot reach another test's server that took the same port, and they do not show in
//! what a proxy in front of the port counts.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::certificate;
use crate::loopback::free_port;
use crate::resp::{self, Reply};
use crate::scratch::{ScratchDir, scratch_dir};
use crate::url;

/// A server is up in milliseconds; only a machine in trouble needs this long.
const START_MAX: Duration = Duration::from_secs(20);
/// A port found free may be taken by another test before the server has it.
const START_TRIES: u32 = 10;
/// How long the kit waits for one answer; a paused server gives none.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long it waits where it will look again anyway, and at other servers meanwhile.
pub(crate) const GLANCE_MAX: Duration = Duration::from_millis(500);

/// A running `redis-server` on a free loopback port, empty, keeping nothing on disk. Dropping it
/// stops the server and removes its folder; so does the end of the test process, however it ends,
/// so that a server kept in a `static` is stopped as well.
///
/// ```no_run
/// use paceline_testkit::{RedisServer, Reply};
///
/// let server = RedisServer::start();
/// assert_eq!(server.command(&["PING"]), Reply::Text("PONG".into()));
/// let small = RedisServer::builder().password("s3cret").config("maxmemory", "4mb").start();
/// assert_eq!(small.url(), format!("redis://:s3cret@127.0.0.1:{}", small.port()));
/// ```
#[derive(Debug)]
pub struct RedisServer {
    how: RedisServerBuilder,
    ports: Ports,
    certificate: Option<certificate::Files>,
    process: Mutex<Option<Process>>,
    folder: ScratchDir,
}

/// How often a command ran, from `INFO commandstats`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommandStats {
    /// Calls since the server started (or since `CONFIG RESETSTAT`), failed ones included.
    pub calls: u64,
    /// Microseconds of the server's time per call, on average.
    pub usec_per_call: f64,
}

impl RedisServer {
    /// Starts a server without a password on a free port.
    ///
    /// # Panics
    /// As [`RedisServerBuilder::start`].
    #[track_caller]
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// A server with a password, TLS, a given port or configuration of its own.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::default()
    }

    /// The port, the same for the server's whole life.
    pub fn port(&self) -> u16 {
        self.ports.clients
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port()).into()
    }

    /// The server as a store's URL: `redis://` or `rediss://`, with its password if it has one.
    pub fn url(&self) -> String {
        let scheme = if self.how.tls { "rediss" } else { "redis" };
        format!("{scheme}://{}{}", url::login(self.how.password.as_deref()), self.addr())
    }

    /// The PEM file of the authority that signed the server's certificate.
    ///
    /// # Panics
    /// When the server was not started with [`RedisServerBuilder::tls`].
    #[track_caller]
    pub fn ca_file(&self) -> &Path {
        &self.certificate.as_ref().expect("the server speaks TLS").ca
    }

    /// The PEM files of a certificate that the server's authority has signed, and of its key: what a
    /// client shows where `tls-auth-clients` is `yes`.
    ///
    /// # Panics
    /// When the server was not started with [`RedisServerBuilder::tls`].
    #[track_caller]
    pub fn client_files(&self) -> (&Path, &Path) {
        let files = self.certificate.as_ref().expect("the server speaks TLS");
        (&files.cert, &files.key)
    }

    /// The server's process id.
    ///
    /// # Panics
    /// When the server has been killed.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.lock().as_ref().expect("the server runs").server.id()
    }

    /// Stops the server where it is, as a machine that hangs: it keeps its connections and answers
    /// nothing until [`RedisServer::resume`].
    ///
    /// # Panics
    /// When the server has been killed.
    #[track_caller]
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// When the server has been killed.
    #[track_caller]
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends the server as a crash does, at once and with no goodbye. When this returns its port
    /// refuses connections. A killed server may be killed again.
    pub fn kill(&self) {
        *self.lock() = None;
    }

    /// Kills the server if it runs and starts it again on the same port, empty. A node of a cluster
    /// comes back as the node it was.
    ///
    /// # Panics
    /// When it does not come back.
    #[track_caller]
    pub fn restart(&self) {
        let mut process = self.lock();
        *process = None;
        let started =
            start_process(&self.how, self.certificate.as_ref(), &self.folder, || self.ports);
        *process = Some(started.0);
    }

    /// Sends one command and returns the answer, an error answer included.
    ///
    /// # Panics
    /// When there is no answer within ten seconds: the server is killed or paused.
    #[track_caller]
    pub fn command(&self, words: &[&str]) -> Reply {
        self.try_command(words)
            .unwrap_or_else(|e| panic!("redis-server did not answer {words:?}: {e}"))
    }

    /// Sends one command over a connection of its own, which shows in `CLIENT LIST`.
    ///
    /// # Errors
    /// When the server is not there, or gives no answer within ten seconds.
    pub fn try_command(&self, words: &[&str]) -> io::Result<Reply> {
        self.try_command_within(words, ANSWER_MAX)
    }

    /// As [`RedisServer::try_command`] for who would rather look elsewhere than wait for a server
    /// that may be paused.
    pub(crate) fn try_command_within(&self, words: &[&str], max: Duration) -> io::Result<Reply> {
        ask(&self.folder, &self.how, words, max)
    }

    /// What `INFO commandstats` says of a command (`evalsha`, `config|get`); None if it has not
    /// run yet.
    ///
    /// # Panics
    /// When the server does not answer.
    #[track_caller]
    pub fn command_stats(&self, name: &str) -> Option<CommandStats> {
        let info = self.command(&["INFO", "commandstats"]);
        parse_stats(info.text()?, name)
    }

    /// One field of one section of `INFO`; None where the server does not answer or has no such
    /// field.
    pub(crate) fn info(&self, section: &str, field: &str) -> Option<String> {
        let info = self.try_command_within(&["INFO", section], GLANCE_MAX).ok()?;
        info.text()?
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned))
    }

    /// Whether the server takes itself for a primary; None where it does not answer.
    pub(crate) fn is_primary(&self) -> Option<bool> {
        let role = self.try_command_within(&["ROLE"], GLANCE_MAX).ok()?;
        Some(role.list()?.first()?.text()? == "master")
    }

    /// The bus port of a node of a cluster.
    pub(crate) fn bus_port(&self) -> Option<u16> {
        self.ports.bus
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        let process = self.lock();
        let server = &process.as_ref().expect("the server runs").server;
        kill_process(Pid::from_child(server), signal)
            .unwrap_or_else(|e| panic!("cannot signal redis-server: {e}"));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Before the folder goes, which is dropped after this.
        self.kill();
    }
}

/// How a [`RedisServer`] is to be.
#[derive(Debug, Clone, Default)]
pub struct RedisServerBuilder {
    password: Option<String>,
    port: Option<u16>,
    tls: bool,
    config: Vec<(String, Vec<String>)>,
    kind: Kind,
}

/// What `redis-server` is started as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Alone,
    /// A node of a cluster, which has a second port for the other nodes.
    Node,
    /// A sentinel, which keeps what it learns in a configuration file that it writes itself.
    Sentinel,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    clients: u16,
    bus: Option<u16>,
}

impl RedisServerBuilder {
    /// Asks every client for a password.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Listens on this port instead of any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Speaks TLS alone, with a certificate for `127.0.0.1` and `localhost` signed by an authority
    /// made for it: see [`RedisServer::ca_file`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets one directive of `redis.conf`; the value is one argument.
    pub fn config(self, name: &str, value: &str) -> Self {
        self.directive(name, &[value])
    }

    /// Starts the server and returns when it answers.
    ///
    /// # Panics
    /// When `redis-server` is not installed, or does not start; the message has its last words.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let folder = scratch_dir("redis");
        let certificate = self.tls.then(|| certificate::write_to(folder.path()));
        let pick = || Ports {
            clients: self.port.unwrap_or_else(free_port),
            bus: (self.kind == Kind::Node).then(free_port),
        };
        let (process, ports) = start_process(&self, certificate.as_ref(), &folder, pick);
        RedisServer { how: self, ports, certificate, process: Mutex::new(Some(process)), folder }
    }

    /// Starts these servers at the same time; their order is kept.
    #[track_caller]
    pub(crate) fn start_all(these: Vec<RedisServerBuilder>) -> Vec<RedisServer> {
        std::thread::scope(|scope| {
            let starting: Vec<_> =
                these.into_iter().map(|one| scope.spawn(move || one.start())).collect();
            let started = starting.into_iter().map(|one| one.join());
            started.map(|one| one.unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
        })
    }

    /// One that has replicas or is one: what it asks of clients it gives to its primary, and a
    /// replica gets its copy as soon as it asks, where `redis-server` would wait for more of them.
    pub(crate) fn replicating(mut self) -> Self {
        if let Some(password) = self.password.clone() {
            self = self.config("masterauth", &password);
        }
        self.config("repl-diskless-sync-delay", "0")
    }

    /// A replica of the primary that is reached there.
    pub(crate) fn replica_of(self, primary: SocketAddr) -> Self {
        self.directive("replicaof", &[&primary.ip().to_string(), &primary.port().to_string()])
    }

    /// A node of a cluster of none but itself.
    pub(crate) fn node(mut self) -> Self {
        self.kind = Kind::Node;
        self.config("cluster-enabled", "yes")
    }

    /// A sentinel that watches nobody yet.
    pub(crate) fn sentinel(mut self) -> Self {
        self.kind = Kind::Sentinel;
        self
    }

    /// A directive of more words than one.
    pub(crate) fn directive(mut self, name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        self.config.push((name.to_owned(), words));
        self
    }
}

/// The server, and a shell that ends it should the test process end without doing so itself.
#[derive(Debug)]
struct Process {
    server: Child,
    guard: Option<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: it must not outlive the process whose id it knows.
        for child in self.guard.iter_mut().chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[track_caller]
fn start_process(
    how: &RedisServerBuilder,
    certificate: Option<&certificate::Files>,
    folder: &ScratchDir,
    pick: impl Fn() -> Ports,
) -> (Process, Ports) {
    let mut last_words = String::new();
    for _ in 0..START_TRIES {
        let ports = pick();
        match try_start(how, certificate, folder, ports) {
            Ok(process) => return (process, ports),
            Err(words) => last_words = words,
        }
    }
    panic!("redis-server did not start in {START_TRIES} tries; its last words:\n{last_words}");
}

fn try_start(
    how: &RedisServerBuilder,
    certificate: Option<&certificate::Files>,
    folder: &ScratchDir,
    ports: Ports,
) -> Result<Process, String> {
    let said = folder.join("log");
    let (out, err) = File::create(&said)
        .and_then(|out| Ok((out.try_clone()?, out)))
        .unwrap_or_else(|e| panic!("cannot write {}: {e}", said.display()));

    let port = ports.clients.to_string();
    let mut command = Command::new("redis-server");
    if how.kind == Kind::Sentinel {
        let file = folder.join("sentinel.conf");
        // Left as it is where it exists: a sentinel that restarts knows what it knew.
        OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
        command.arg(file).arg("--sentinel");
    }
    let mut set = |name: &str, value: &str| {
        command.arg(format!("--{name}")).arg(value);
    };
    set("bind", "127.0.0.1");
    set("daemonize", "no");
    set("save", "");
    set("appendonly", "no");
    set("dir", &folder.path().display().to_string());
    set("unixsocket", &folder.join("socket").display().to_string());
    set("unixsocketperm", "700");
    match certificate {
        None => set("port", &port),
        Some(files) => {
            set("port", "0");
            set("tls-port", &port);
            set("tls-cert-file", &files.cert.display().to_string());
            set("tls-key-file", &files.key.display().to_string());
            set("tls-ca-cert-file", &files.ca.display().to_string());
            set("tls-auth-clients", "no");
        }
    }
    if let Some(password) = &how.password {
        set("requirepass", password);
    }
    if let Some(bus) = ports.bus {
        set("cluster-port", &bus.to_string());
    }
    for (name, words) in &how.config {
        command.arg(format!("--{name}")).args(words);
    }

    let server = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap_or_else(|e| {
        panic!("cannot run redis-server ({e}); `cargo xtask ci` installs it, or install Debian's redis-server")
    });
    let mut process = Process { server, guard: None };
    process.guard = Some(guard(&process.server, folder));

    let deadline = Instant::now() + START_MAX;
    loop {
        if ask(folder, how, &["PING"], ANSWER_MAX).is_ok_and(|reply| reply.text() == Some("PONG")) {
            return Ok(process);
        }
        let ended = !matches!(process.server.try_wait(), Ok(None));
        if ended || Instant::now() >= deadline {
            drop(process);
            return Err(std::fs::read_to_string(&said).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A shell that waits for the end of its input, which is the end of this process, and then does
/// what dropping would have done. In a group of its own, so that an interrupt from the keyboard
/// does not end it first.
#[track_caller]
fn guard(server: &Child, folder: &ScratchDir) -> Child {
    Command::new("/bin/sh")
        .args(["-c", "read -r _; kill -KILL \"$1\"; rm -rf -- \"$2\"", "redis-server-guard"])
        .arg(server.id().to_string())
        .arg(folder.path())
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|e| panic!("cannot run /bin/sh: {e}"))
}

/// One command over a new connection to the socket in the server's folder.
fn ask(
    folder: &ScratchDir,
    how: &RedisServerBuilder,
    words: &[&str],
    max: Duration,
) -> io::Result<Reply> {
    let stream = UnixStream::connect(folder.join("socket"))?;
    stream.set_read_timeout(Some(max))?;
    stream.set_write_timeout(Some(max))?;
    let mut from = BufReader::new(&stream);
    if let Some(password) = &how.password {
        resp::write_command(&mut &stream, &["AUTH", password])?;
        resp::read_reply(&mut from)?;
    }
    resp::write_command(&mut &stream, words)?;
    resp::read_reply(&mut from)
}

/// `cmdstat_evalsha:calls=3,usec=120,usec_per_call=40.00,rejected_calls=0,failed_calls=0`
fn parse_stats(info: &str, name: &str) -> Option<CommandStats> {
    let line = info.lines().find_map(|line| {
        line.strip_prefix("cmdstat_")?.strip_prefix(&name.to_lowercase())?.strip_prefix(':')
    })?;
    let field = |wanted: &str| {
        line.split(',').find_map(|field| field.strip_prefix(wanted)?.strip_prefix('='))
    };
    Some(CommandStats {
        calls: field("calls")?.parse().ok()?,
        usec_per_call: field("usec_per_call")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_commandstats_is_found_by_its_whole_name() {
        let info = "# Commandstats\r\n\
            cmdstat_evalsha:calls=3,usec=121,usec_per_call=40.33,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_config|get:calls=1,usec=9,usec_per_call=9.00,rejected_calls=0,failed_calls=0\r\n";
        let stats = |calls, usec_per_call| Some(CommandStats { calls, usec_per_call });
        assert_eq!(parse_stats(info, "EVALSHA"), stats(3, 40.33));
        assert_eq!(parse_stats(info, "config|get"), stats(1, 9.0));
        assert_eq!(parse_stats(info, "eval"), None);
    }
}
