//! The one multiplexed connection to a server, and how it comes back: in the background, one
//! attempt at a time, with growing pauses and jitter. Calls made while it is away wait for the
//! attempt under way, within their own bound, and fail at once while it pauses between two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use paceline_core::script;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tokio::sync::watch;

use super::address::Address;
use super::failure::Failure;
use super::sentinel::Sentinels;
use crate::error::Error;

/// The oldest server whose scripts we can rely on, by the version that Redis and Valkey print for
/// clients of Redis.
const VERSION_MIN: (u64, u64) = (6, 2);
/// What an attempt may take, in timeouts of one operation: it is several round trips, with TLS and
/// Sentinels some more.
pub(super) const ATTEMPT_TIMEOUTS: u32 = 4;
/// First pause between two attempts; it doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);
/// The longest where another server may have taken over meanwhile.
const PAUSE_LONGEST_FAILOVER: Duration = Duration::from_millis(250);

/// Keeps the connection to one server. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    finds: Finds,
    /// The server for messages, without its password.
    server: String,
    timeout: Duration,
    pause_longest: Duration,
    state: watch::Sender<State>,
    generations: AtomicU64,
    /// Whether a connection that let a call time out is being asked if it lives.
    probing: AtomicBool,
    /// Locked while one call loads the script for all, and how often it was loaded.
    loading: tokio::sync::Mutex<()>,
    loads: AtomicU64,
}

/// Where the server is.
#[derive(Debug)]
pub(super) enum Finds {
    /// There.
    At(Address, Arc<Client>),
    /// Where the sentinels say, asked anew for each connection.
    By(Box<Sentinels>),
}

/// A connection, and the number that tells it from those before it.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: u64,
    at: Arc<(Address, Arc<Client>)>,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {} to {}", self.generation, self.at.0)
    }
}

#[derive(Debug, Clone)]
enum State {
    Up(Connected),
    /// An attempt is under way.
    Connecting,
    /// The last attempt failed; the next comes after a pause.
    Down(Error),
}

impl Connector {
    /// Tries to connect once. A server that is away is no error; it is tried again in the
    /// background.
    pub(super) async fn open(
        finds: Finds,
        server: String,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let this = Self::new(finds, server, timeout);
        let shared = &this.shared;
        match shared.connect().await {
            Ok(()) => {}
            Err(error) if error.is_unavailable() => {
                tracing::warn!(server = shared.server, %error, "the store is away");
                shared.state.send_replace(State::Down(error));
                tokio::spawn(reconnect(Arc::downgrade(shared), PAUSE_FIRST));
            }
            Err(error) => return Err(error),
        }
        if let Finds::By(_) = shared.finds {
            tokio::spawn(follow(Arc::downgrade(shared)));
        }
        Ok(this)
    }

    /// Connects in the background, from now on.
    pub(super) fn begin(finds: Finds, server: String, timeout: Duration) -> Self {
        let this = Self::new(finds, server, timeout);
        tokio::spawn(reconnect(Arc::downgrade(&this.shared), Duration::ZERO));
        this
    }

    fn new(finds: Finds, server: String, timeout: Duration) -> Self {
        let pause_longest = match finds {
            Finds::At(..) => PAUSE_LONGEST,
            Finds::By(_) => PAUSE_LONGEST_FAILOVER,
        };
        let shared = Shared {
            finds,
            server,
            timeout,
            pause_longest,
            state: watch::Sender::new(State::Connecting),
            generations: AtomicU64::new(0),
            probing: AtomicBool::new(false),
            loading: tokio::sync::Mutex::default(),
            loads: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The server for messages.
    pub(super) fn server(&self) -> &str {
        &self.shared.server
    }

    /// Where the server is.
    pub(super) fn finds(&self) -> &Finds {
        &self.shared.finds
    }

    /// Where the server is, for a person: its address, or what stands for it while that is not
    /// known.
    pub(super) fn at(&self) -> String {
        match (&self.shared.finds, self.address()) {
            (Finds::At(address, _), _) => address.to_string(),
            (Finds::By(_), Some(address)) => address.to_string(),
            (Finds::By(_), None) => self.shared.server.clone(),
        }
    }

    /// Where the connection goes to while there is one.
    pub(super) fn address(&self) -> Option<Address> {
        match &*self.shared.state.borrow() {
            State::Up(connected) => Some(connected.at.0.clone()),
            _ => None,
        }
    }

    /// For connections of another kind to where the present one goes, and a watch that tells when
    /// that one has ended.
    pub(super) async fn client(&self) -> Result<(Arc<Client>, Ended), Error> {
        let mut ended = Ended(self.shared.state.subscribe());
        ended.0.mark_unchanged();
        let connected = self.get().await?;
        ended.0.mark_unchanged();
        Ok((Arc::clone(&connected.at.1), ended))
    }

    /// Why one could not be made.
    pub(super) fn no_connection(&self, error: &redis::RedisError) -> Error {
        no_connection(error, &self.shared.server)
    }

    /// How often the script was loaded.
    pub(super) fn loads(&self) -> u64 {
        self.shared.loads.load(Ordering::Acquire)
    }

    /// Sends one command, or where the server takes a slot over says first that it was sent on to
    /// it. With `replicas` that many must have what it changed before it is answered.
    pub(super) async fn send(
        &self,
        command: &Cmd,
        asking: bool,
        replicas: u32,
    ) -> Result<Value, Failure> {
        let Connected { mut connection, generation, .. } =
            self.get().await.map_err(Failure::Unable)?;
        let answer = if asking || replicas > 0 {
            self.send_among_others(&mut connection, command, asking, replicas).await
        } else {
            let answer = connection.send_packed_command(command).await;
            answer.and_then(Value::extract_error).map_err(|it| Failure::of(&it, self.server()))
        };
        if let Err(Failure::Away(_) | Failure::Replica(_)) = &answer {
            self.lost(generation);
        }
        answer
    }

    /// Sends a command with one before it, one behind it or both, in one go.
    async fn send_among_others(
        &self,
        connection: &mut MultiplexedConnection,
        command: &Cmd,
        asking: bool,
        replicas: u32,
    ) -> Result<Value, Failure> {
        let mut all = redis::pipe();
        if asking {
            all.cmd("ASKING");
        }
        all.add_command(command.clone());
        if replicas > 0 {
            // It holds up all that is sent on this connection after it, so it gives up early; the
            // connection is then replaced, and with it goes what has piled up behind it.
            let patience_ms = (self.shared.timeout / 3).as_millis().max(1);
            all.cmd("WAIT").arg(replicas).arg(u64::try_from(patience_ms).unwrap_or(u64::MAX));
        }
        let failed = |error: &redis::RedisError| Failure::of(error, self.server());
        let count = all.len();
        let answers = connection.send_packed_commands(&all, 0, count).await;
        let mut answers = answers.map_err(|error| failed(&error))?.into_iter();
        if asking {
            answers.next();
        }
        let answer = answers.next().unwrap_or(Value::Nil).extract_error();
        let answer = answer.map_err(|error| failed(&error))?;
        if replicas > 0 {
            let have = answers.next().unwrap_or(Value::Nil).extract_error();
            match have.map_err(|error| failed(&error))? {
                Value::Int(have) if have >= i64::from(replicas) => {}
                have => {
                    let have = if let Value::Int(have) = have { have } else { 0 };
                    return Err(Failure::Away(Error::unavailable(format!(
                        "{}: {have} of {replicas} replicas have the change in time; the call may \
                         have been counted",
                        self.server()
                    ))));
                }
            }
        }
        Ok(answer)
    }

    /// Loads the script, unless another call has loaded it since `seen` loads.
    pub(super) async fn load_script(&self, seen: u64) -> Result<(), Failure> {
        let _loading = self.shared.loading.lock().await;
        if self.loads() > seen {
            return Ok(());
        }
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(script::SOURCE);
        self.send(&load, false, 0).await?;
        self.shared.loads.fetch_add(1, Ordering::Release);
        tracing::debug!(server = self.server(), "script loaded");
        Ok(())
    }

    /// The connection, or why there is none. Waits for an attempt under way; bounded by the
    /// caller.
    pub(super) async fn get(&self) -> Result<Connected, Error> {
        match &*self.shared.state.borrow() {
            State::Up(connected) => return Ok(connected.clone()),
            State::Down(error) => return Err(error.clone()),
            State::Connecting => {}
        }
        let mut state = self.shared.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        match settled.as_deref() {
            Ok(State::Up(connected)) => Ok(connected.clone()),
            Ok(State::Down(error)) => Err(error.clone()),
            _ => Err(Error::unavailable(format!("{} is away", self.shared.server))),
        }
    }

    /// A connection is of no more use; a new one is made in the background.
    fn lost(&self, generation: u64) {
        self.shared.lost(generation);
    }

    /// A call on the connection was not answered in time: asks it whether it lives, and drops it
    /// where it does not, so that one that is half open heals by itself.
    pub(super) fn suspect(&self) {
        let State::Up(connected) = self.shared.state.borrow().clone() else { return };
        if self.shared.probing.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        let timeout = self.shared.timeout;
        tokio::spawn(async move {
            let Connected { mut connection, generation, .. } = connected;
            let ping = redis::cmd("PING");
            let answer = tokio::time::timeout(timeout, ping.query_async::<Value>(&mut connection));
            let alive = matches!(answer.await, Ok(Ok(_)));
            if let Some(shared) = shared.upgrade() {
                shared.probing.store(false, Ordering::Relaxed);
                if !alive {
                    shared.lost(generation);
                }
            }
        });
    }
}

/// Tells when a connection has ended.
#[derive(Debug)]
pub(super) struct Ended(watch::Receiver<State>);

impl Ended {
    /// Cancel safe.
    pub(super) async fn ended(&mut self) {
        // An error says that the store itself is gone.
        let _ = self.0.changed().await;
    }
}

impl Shared {
    /// Makes a connection within the bound, checks the server and puts the connection in place.
    async fn connect(&self) -> Result<(), Error> {
        let bound = self.timeout * ATTEMPT_TIMEOUTS;
        let attempt = tokio::time::timeout(bound, self.attempt()).await;
        let (connection, at) = attempt.unwrap_or_else(|_| {
            Err(Error::unavailable(format!("{} did not answer within {bound:?}", self.server)))
        })?;
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(server = self.server, at = %at.0, generation, "connected");
        let at = Arc::new(at);
        self.state.send_replace(State::Up(Connected { connection, generation, at }));
        Ok(())
    }

    async fn attempt(&self) -> Result<(MultiplexedConnection, (Address, Arc<Client>)), Error> {
        match &self.finds {
            Finds::At(address, client) => {
                let connection = self.reach(client).await?;
                Ok((connection, (address.clone(), Arc::clone(client))))
            }
            Finds::By(sentinels) => {
                let mut last = None;
                for address in sentinels.primaries().await? {
                    let client = Arc::new(sentinels.client(&address)?);
                    match self.reach(&client).await {
                        Ok(connection) => return Ok((connection, (address, client))),
                        Err(error) if error.is_unavailable() => last = Some(error.at(&address)),
                        Err(error) => return Err(error.at(&address)),
                    }
                }
                Err(last.unwrap_or_else(|| {
                    Error::unavailable(format!("{}: no sentinel names a primary", self.server))
                }))
            }
        }
    }

    /// A connection to a server that may decide. What it says of itself takes one round trip; what
    /// the user may not ask is not known. A server that wants a password first is an error here, not
    /// at the first call.
    async fn reach(&self, client: &Client) -> Result<MultiplexedConnection, Error> {
        let failed = |error| no_connection(&error, &self.server);
        let mut connection = connect(client).await.map_err(failed)?;
        let mut ask = redis::pipe();
        ask.cmd("ROLE").cmd("INFO").arg("server").cmd("INFO").arg("memory");
        let answers = connection.send_packed_commands(&ask, 0, 3).await.map_err(failed)?;
        let mut answers = answers.into_iter().map(Value::extract_error);
        match answers.next() {
            Some(Ok(Value::Array(role))) => {
                if let Some(Value::BulkString(role)) = role.first()
                    && role == b"sentinel"
                {
                    return Err(Error::incompatible(format!(
                        "{} is a sentinel; name the store redis+sentinel://host/service",
                        self.server
                    )));
                }
                if let Some(Value::BulkString(role)) = role.first()
                    && role != b"master"
                {
                    return Err(Error::unavailable(format!(
                        "{}: the server is a replica, and only a primary can decide",
                        self.server
                    )));
                }
            }
            Some(Err(error)) if error.code() == Some("NOAUTH") => return Err(failed(error)),
            // A user who may not ask learns it by READONLY.
            _ => {}
        }
        let mut info = String::new();
        for section in answers.flatten() {
            info += &redis::from_redis_value::<String>(section).unwrap_or_default();
        }
        self.check(&info)?;
        Ok(connection)
    }

    /// Refuses a server that is too old, and warns once of one that may forget buckets. What does
    /// not print a version is taken as it is.
    fn check(&self, info: &str) -> Result<(), Error> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        if let Some(version) = field("redis_version") {
            let mut numbers = version.split('.').map_while(|number| number.parse::<u64>().ok());
            let (major, minor) = (numbers.next(), numbers.next().unwrap_or(0));
            if major.is_some_and(|major| (major, minor) < VERSION_MIN) {
                return Err(Error::incompatible(format!(
                    "Redis {version} at {} is too old: Paceline needs {}.{} or newer",
                    self.server, VERSION_MIN.0, VERSION_MIN.1
                )));
            }
        }
        let first = self.generations.load(Ordering::Relaxed) == 0;
        if let Some(policy) =
            field("maxmemory_policy").filter(|policy| first && *policy != "noeviction")
        {
            tracing::warn!(
                server = self.server,
                maxmemory_policy = policy,
                "when memory is short this server may evict buckets: an evicted bucket counts as full \
                 and its suspension as lifted; use noeviction, or a server of its own"
            );
        }
        Ok(())
    }

    fn lost(self: &Arc<Self>, generation: u64) {
        let lost = self.state.send_if_modified(|state| match state {
            State::Up(connected) if connected.generation == generation => {
                *state = State::Connecting;
                true
            }
            _ => false,
        });
        if lost {
            tracing::warn!(server = self.server, "the connection is lost");
            tokio::spawn(reconnect(Arc::downgrade(self), Duration::ZERO));
        }
    }
}

/// A connection without bounds of its own; the caller has them.
pub(super) async fn connect(client: &Client) -> redis::RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Before anything was sent, nothing can have been counted.
pub(super) fn no_connection(error: &redis::RedisError, server: &str) -> Error {
    match Failure::of(error, server) {
        Failure::Forbidden(error) | Failure::Unable(error) => error,
        _ => Error::unavailable(format!("{server} is away: {error}")),
    }
}

/// Connects again and again until it succeeds or the store is gone. The first attempt comes after
/// `pause`.
async fn reconnect(shared: Weak<Shared>, mut pause: Duration) {
    loop {
        if !pause.is_zero() {
            tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
        }
        let Some(shared) = shared.upgrade() else { return };
        match shared.connect().await {
            Ok(()) => {
                tracing::info!(server = shared.server, "the store is back");
                return;
            }
            Err(error) => {
                tracing::debug!(server = shared.server, %error, "no connection yet");
                shared.state.send_replace(State::Down(error));
            }
        }
        pause = (pause * 2).clamp(PAUSE_FIRST, shared.pause_longest);
    }
}

/// Asks every second whether the sentinels still name the server that is in use: a primary that was
/// replaced may go on answering, as one that nobody else reaches.
async fn follow(shared: Weak<Shared>) {
    const PAUSE: Duration = Duration::from_millis(800);
    loop {
        tokio::time::sleep(PAUSE.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
        let Some(shared) = shared.upgrade() else { return };
        let Finds::By(sentinels) = &shared.finds else { return };
        let State::Up(connected) = shared.state.borrow().clone() else { continue };
        let asking = sentinels.named_otherwise(&connected.at.0);
        if let Ok(true) = tokio::time::timeout(shared.timeout, asking).await {
            tracing::warn!(server = shared.server, was = %connected.at.0, "another is primary now");
            shared.lost(connected.generation);
        }
    }
}
