//! The one multiplexed connection, and how it comes back: in the background, one attempt at a
//! time, with growing pauses and jitter. Calls made while it is away wait for the attempt under
//! way, within their own bound, and fail at once while it pauses between two.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisResult,
};
use tokio::sync::watch;

use super::failure::Failure;
use crate::error::Error;
use crate::store::url::RedisUrl;

/// The oldest server whose scripts we can rely on.
const VERSION_MIN: (u64, u64) = (6, 2);
/// First pause between two attempts; it doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(2);

/// Keeps the connection.
#[derive(Debug)]
pub(super) struct Connector {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    /// The server for messages, without its password.
    server: String,
    timeout: Duration,
    state: watch::Sender<State>,
    generations: AtomicU64,
    /// Whether a connection that let a call time out is being asked if it lives.
    probing: AtomicBool,
}

/// A connection, and the number that tells it from those before it.
#[derive(Clone)]
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: u64,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "connection {}", self.generation)
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
    pub(super) async fn open(url: &RedisUrl, timeout: Duration) -> Result<Self, Error> {
        let server = url.to_string();
        let client = Client::open(info(url)?)
            .map_err(|error| Error::input(format!("store {server}: {error}")))?;
        let shared = Arc::new(Shared {
            client,
            server,
            timeout,
            state: watch::Sender::new(State::Connecting),
            generations: AtomicU64::new(0),
            probing: AtomicBool::new(false),
        });
        match shared.connect().await {
            Ok(()) => {}
            Err(error) if error.is_unavailable() => {
                tracing::warn!(server = shared.server, %error, "the store is away");
                shared.state.send_replace(State::Down(error));
                tokio::spawn(reconnect(Arc::downgrade(&shared), PAUSE_FIRST));
            }
            Err(error) => return Err(error),
        }
        Ok(Self { shared })
    }

    /// The server for messages.
    pub(super) fn server(&self) -> &str {
        &self.shared.server
    }

    /// For connections of another kind.
    pub(super) fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Why one could not be made.
    pub(super) fn no_connection(&self, error: &redis::RedisError) -> Error {
        self.shared.no_connection(error)
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
    pub(super) fn lost(&self, generation: u64) {
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
            let Connected { mut connection, generation } = connected;
            let ping = redis::cmd("PING");
            let answer =
                tokio::time::timeout(timeout, ping.query_async::<redis::Value>(&mut connection));
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

impl Shared {
    /// Makes a connection within the bound, checks the server and puts the connection in place.
    async fn connect(&self) -> Result<(), Error> {
        let attempt = async {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None);
            let mut connection =
                self.client.get_multiplexed_async_connection_with_config(&config).await?;
            let info = self.server_info(&mut connection).await?;
            RedisResult::Ok((connection, info))
        };
        let (connection, info) = match tokio::time::timeout(self.timeout, attempt).await {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(self.no_connection(&error)),
            Err(_) => {
                return Err(Error::unavailable(format!(
                    "{} did not answer within {:?}",
                    self.server, self.timeout
                )));
            }
        };
        self.check(&info)?;
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(server = self.server, generation, "connected");
        self.state.send_replace(State::Up(Connected { connection, generation }));
        Ok(())
    }

    /// `INFO` on server and memory; nothing where the user may not ask. A server that wants a
    /// password first is an error here, not at the first call.
    async fn server_info(&self, connection: &mut MultiplexedConnection) -> RedisResult<String> {
        let mut text = String::new();
        for section in ["server", "memory"] {
            let mut info = redis::cmd("INFO");
            info.arg(section);
            match info.query_async::<String>(connection).await {
                Ok(section) => text += &section,
                Err(error) if error.code() == Some("NOAUTH") || error.is_io_error() => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        Ok(text)
    }

    /// Refuses a server that is too old, and warns once of one that may forget buckets.
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

    fn no_connection(&self, error: &redis::RedisError) -> Error {
        match Failure::of(error, &self.server) {
            Failure::Told(error) if error.is_forbidden() || error.is_unavailable() => error,
            // Before anything was sent, nothing can have been counted.
            _ => Error::unavailable(format!("{} is away: {error}", self.server)),
        }
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
        pause = (pause * 2).clamp(PAUSE_FIRST, PAUSE_LONGEST);
    }
}

/// The server behind TLS, with the system's certificates (or those of `SSL_CERT_FILE`). The
/// process's cryptography is the program's choice; where it made none it is ring's.
#[cfg(feature = "tls")]
fn with_tls(url: &RedisUrl) -> ConnectionAddr {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread was quicker.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    ConnectionAddr::TcpTls {
        host: url.host.clone(),
        port: url.port,
        insecure: false,
        tls_params: None,
    }
}

/// What the client needs to know, without ever printing it.
fn info(url: &RedisUrl) -> Result<redis::ConnectionInfo, Error> {
    let addr = if url.tls {
        #[cfg(not(feature = "tls"))]
        return Err(Error::input(format!("store {url}: built without TLS (the feature `tls`)")));
        #[cfg(feature = "tls")]
        with_tls(url)
    } else {
        ConnectionAddr::Tcp(url.host.clone(), url.port)
    };
    let mut settings = RedisConnectionInfo::default().set_db(url.db).set_skip_set_lib_name();
    if let Some(user) = &url.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &url.password {
        settings = settings.set_password(password);
    }
    let info = addr
        .into_connection_info()
        .map_err(|error| Error::input(format!("store {url}: {error}")))?;
    Ok(info.set_redis_settings(settings).set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}
