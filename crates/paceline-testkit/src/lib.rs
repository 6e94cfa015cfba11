//! What Paceline's tests share: a real `redis-server` per test, and faults on a loopback wire.
//!
//! Everything here is blocking `std`, so that a plain test, a tokio test and a bench use it alike,
//! and everything here panics with words instead of returning errors: a kit that cannot do its
//! part is a failed test. Nothing leaves 127.0.0.1, and whatever is started is stopped by its own
//! id when its handle is dropped.
//!
//! - [`RedisServer`]: a real server in its own folder, to pause, kill, restart and look into.
//! - [`ReplicaPair`]: a primary and a replica with a wire between them that can be cut.
//! - [`SentinelSet`]: servers that fail over, and the three sentinels that see to it.
//! - [`RedisCluster`]: nodes that share the keys, whose slots move and whose primaries fail.
//! - [`FaultProxy`]: a TCP proxy that loses answers, delays, stalls, cuts and refuses on request.
//! - [`TimeShiftProxy`]: a proxy behind which Paceline's script sees another time.
//! - [`ScriptedServer`]: a fake server that answers each command with what a closure says.
//! - [`scratch_dir`]: a folder that is gone when the test is over.
//! - [`free_port`]: a loopback port on which nobody listens.
//! - [`eventually`]: the one way to wait for something that happens elsewhere.

mod certificate;
mod eventually;
mod loopback;
mod proxy;
mod redis_cluster;
mod redis_server;
mod replica_pair;
mod resp;
mod scratch;
mod scripted;
mod sentinel_set;
mod time_shift;
mod url;

pub use eventually::eventually;
pub use loopback::free_port;
pub use proxy::{FaultProxy, Mode};
pub use redis_cluster::{RedisCluster, RedisClusterBuilder};
pub use redis_server::{CommandStats, RedisServer, RedisServerBuilder};
pub use replica_pair::{ReplicaPair, ReplicaPairBuilder};
pub use resp::Reply;
pub use scratch::{ScratchDir, scratch_dir};
pub use scripted::ScriptedServer;
pub use sentinel_set::{SentinelSet, SentinelSetBuilder};
pub use time_shift::TimeShiftProxy;
