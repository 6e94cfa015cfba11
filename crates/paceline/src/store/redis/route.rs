//! From a key to the server that has it, and after it where it has gone. What may have been
//! executed is never sent again: only answers that prove the contrary are followed.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::access::Access;
use super::cluster::{self, Cluster};
use super::connection::{Connector, Finds};
use super::failure::Failure;
use super::sentinel::Sentinels;
use super::url::{RedisUrl, Servers};
use crate::error::Error;

/// How often one command is sent on before it is given up: a slot may move while it is under way,
/// and the script may have to be loaded at each stop.
const STOPS_MAX: usize = 8;
/// Before a slot that is between two nodes is asked for again.
const BETWEEN: Duration = Duration::from_millis(10);

/// The servers of a store.
#[derive(Debug)]
pub(super) struct Route {
    servers: Ways,
    /// Replicas that must have a change before it is answered.
    replicas: u32,
}

#[derive(Debug)]
enum Ways {
    /// One server, or the primary behind Sentinels.
    One(Connector),
    Cluster(Cluster),
}

impl Route {
    pub(super) async fn open(url: &RedisUrl, timeout: Duration) -> Result<Self, Error> {
        let (name, access) = (url.to_string(), Access::to_servers(url)?);
        let servers = match &url.servers {
            Servers::One(address) => {
                let finds = Finds::At(address.clone(), Arc::new(access.client(address)?));
                Ways::One(Connector::open(finds, name, timeout).await?)
            }
            Servers::Sentinel { sentinels, service, login } => {
                let to_them = Access::to_sentinels(url, login)?;
                let finds = Sentinels::new(service, sentinels, &to_them, access, timeout)?;
                Ways::One(Connector::open(Finds::By(Box::new(finds)), name, timeout).await?)
            }
            Servers::Cluster(seeds) => {
                Ways::Cluster(Cluster::open(name, seeds.clone(), access, timeout).await?)
            }
        };
        Ok(Self { servers, replicas: url.replicas })
    }

    /// Where this is a Cluster.
    pub(super) fn cluster(&self) -> Option<&Cluster> {
        match &self.servers {
            Ways::One(_) => None,
            Ways::Cluster(cluster) => Some(cluster),
        }
    }

    /// Where the server is found by sentinels.
    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.servers {
            Ways::One(server) => match server.finds() {
                Finds::By(sentinels) => Some(sentinels),
                Finds::At(..) => None,
            },
            Ways::Cluster(_) => None,
        }
    }

    /// Replicas that must have a change before it is answered.
    pub(super) fn replicas(&self) -> u32 {
        self.replicas
    }

    /// The server that has a key.
    pub(super) fn of(&self, key: &str) -> Result<Connector, Error> {
        match &self.servers {
            Ways::One(server) => Ok(server.clone()),
            Ways::Cluster(cluster) => cluster.owner(cluster::slot(key.as_bytes())),
        }
    }

    /// All servers that have keys.
    pub(super) fn all(&self) -> Vec<Connector> {
        match &self.servers {
            Ways::One(server) => vec![server.clone()],
            Ways::Cluster(cluster) => cluster.owners(),
        }
    }

    /// Any one of them: what is published on one reaches all.
    pub(super) fn any(&self) -> Result<Connector, Error> {
        let all = self.all();
        let there = all.iter().find(|server| server.address().is_some());
        match there.or(all.first()) {
            Some(server) => Ok(server.clone()),
            // Says why there is none.
            None => self.of(""),
        }
    }

    /// Sends a command about a key to who has it.
    pub(super) async fn send(&self, command: &Cmd, key: &str) -> Result<Value, Error> {
        let (mut to, mut asking) = (self.of(key)?, false);
        let mut stops = 0;
        loop {
            let loads = to.loads();
            let failure = match to.send(command, asking, self.replicas).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            stops += 1;
            if stops == STOPS_MAX {
                return Err(failure.told(to.server(), key));
            }
            (to, asking) = match (failure, &self.servers) {
                (Failure::NoScript, _) => {
                    let loaded = to.load_script(loads).await;
                    loaded.map_err(|failure| failure.told(to.server(), key))?;
                    (to, asking)
                }
                (Failure::Moved { to: told, slot }, Ways::Cluster(cluster)) => {
                    let node = cluster.node(&told, &to)?;
                    cluster.moved(slot, &node);
                    (node, false)
                }
                (Failure::Ask { to: told }, Ways::Cluster(cluster)) => {
                    (cluster.node(&told, &to)?, true)
                }
                (Failure::TryAgain(_), _) => {
                    tokio::time::sleep(BETWEEN).await;
                    (self.of(key)?, false)
                }
                (Failure::Replica(error), Ways::One(_)) => {
                    // A new connection is made; it may find the primary.
                    if stops > 1 {
                        return Err(error);
                    }
                    (to, false)
                }
                (Failure::Replica(error), Ways::Cluster(cluster)) => {
                    if stops > 1 {
                        return Err(error);
                    }
                    cluster.read_anew().await;
                    (self.of(key)?, false)
                }
                (failure, servers) => {
                    if let Ways::Cluster(cluster) = servers
                        && matches!(failure, Failure::Away(_) | Failure::Unable(_))
                    {
                        cluster.stir();
                    }
                    return Err(failure.told(to.server(), key));
                }
            };
        }
    }

    /// A call about a key was not answered in time.
    pub(super) fn suspect(&self, key: &str) {
        if let Ok(server) = self.of(key) {
            server.suspect();
        }
        if let Ways::Cluster(cluster) = &self.servers {
            cluster.stir();
        }
    }
}
