//! A Cluster: which node has which slot, and a connection to each node that has one. What nodes
//! answer (MOVED) corrects a slot at once; all slots are asked for anew in the background, at most
//! ten times a second, and again and again while a node that has slots is away, so that a replica
//! that takes over is found.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use redis::Value;
use tokio::sync::{Notify, watch};

use super::access::Access;
use super::address::Address;
use super::connection::{Connector, Finds, connect, no_connection};
use crate::error::Error;

/// Slots of a Cluster.
const SLOTS: u16 = 16_384;
/// Between two looks at who has which slot; it doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

/// The nodes of a Cluster. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// For messages.
    name: String,
    seeds: Vec<Address>,
    access: Access,
    timeout: Duration,
    map: RwLock<Map>,
    stirred: Notify,
    /// How often the map was read.
    readings: watch::Sender<u64>,
}

/// Who has what.
#[derive(Debug)]
struct Map {
    nodes: HashMap<Address, Connector>,
    /// By slot; `None` where nobody is known to have it.
    owners: Vec<Option<Connector>>,
    /// Why there is no map yet.
    error: Option<Error>,
}

/// A run of slots and the node that has it.
type Owned = (u16, u16, Address);

impl Cluster {
    /// Reads the map once. Nodes that are away are no error; they are tried again in the
    /// background.
    pub(super) async fn open(
        name: String,
        seeds: Vec<Address>,
        access: Access,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            name,
            seeds,
            access,
            timeout,
            map: RwLock::new(Map {
                nodes: HashMap::new(),
                owners: vec![None; usize::from(SLOTS)],
                error: None,
            }),
            stirred: Notify::new(),
            readings: watch::Sender::new(0),
        });
        match shared.read().await {
            Ok(()) => {}
            Err(error) if error.is_unavailable() => {
                tracing::warn!(cluster = shared.name, %error, "the store is away");
                shared.stirred.notify_one();
            }
            Err(error) => return Err(error),
        }
        tokio::spawn(tend(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }

    /// The node that has a slot.
    pub(super) fn owner(&self, slot: u16) -> Result<Connector, Error> {
        let map = self.shared.map.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(owner)) = map.owners.get(usize::from(slot)) {
            return Ok(owner.clone());
        }
        let error = map.error.clone();
        drop(map);
        self.stir();
        Err(error.unwrap_or_else(|| {
            Error::unavailable(format!("{}: no node has slot {slot}", self.shared.name))
        }))
    }

    /// The nodes that have slots.
    pub(super) fn owners(&self) -> Vec<Connector> {
        let map = self.shared.map.read().unwrap_or_else(PoisonError::into_inner);
        map.nodes.values().cloned().collect()
    }

    /// How many slots nobody is known to have.
    pub(super) fn uncovered(&self) -> usize {
        let map = self.shared.map.read().unwrap_or_else(PoisonError::into_inner);
        map.owners.iter().filter(|owner| owner.is_none()).count()
    }

    /// The node `asked` sent us on to, as it spells the address.
    pub(super) fn node(&self, told: &str, asked: &Connector) -> Result<Connector, Error> {
        let asked_at = asked.address().unwrap_or_else(|| self.shared.seeds[0].clone());
        let address = Address::told(told, &asked_at).ok_or_else(|| {
            Error::incompatible(format!("{} sends us on to {told:?}", asked.server()))
        })?;
        let mut map = self.shared.map.write().unwrap_or_else(PoisonError::into_inner);
        self.shared.node(&mut map, &address)
    }

    /// A slot has moved to that node. The others are asked for in the background.
    pub(super) fn moved(&self, slot: u16, to: &Connector) {
        let mut map = self.shared.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
            *owner = Some(to.clone());
        }
        drop(map);
        self.stir();
    }

    /// Has the map read anew.
    pub(super) fn stir(&self) {
        self.shared.stirred.notify_one();
    }

    /// Has the map read anew and waits until it is; bounded by the caller.
    pub(super) async fn read_anew(&self) {
        let mut readings = self.shared.readings.subscribe();
        readings.mark_unchanged();
        self.stir();
        // An error says that the store is gone.
        let _ = readings.changed().await;
    }
}

impl Shared {
    fn node(&self, map: &mut Map, address: &Address) -> Result<Connector, Error> {
        if let Some(node) = map.nodes.get(address) {
            return Ok(node.clone());
        }
        let client = Arc::new(self.access.client(address)?);
        let server = format!("{} (of {})", address, self.name);
        let node = Connector::begin(Finds::At(address.clone(), client), server, self.timeout);
        map.nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    /// Asks the nodes there are, and then the seeds, until one tells who has which slot. In no
    /// order: one that is cut off may tell what was.
    async fn read(&self) -> Result<(), Error> {
        let mut nodes: Vec<(Address, Option<Connector>)> = {
            let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
            let nodes = map.nodes.iter();
            nodes.map(|(address, node)| (address.clone(), Some(node.clone()))).collect()
        };
        fastrand::shuffle(&mut nodes);
        // Those with a connection first.
        nodes.sort_by_key(|(_, node)| node.as_ref().is_none_or(|it| it.address().is_none()));
        let seeds = self.seeds.iter().filter(|seed| nodes.iter().all(|(at, _)| at != *seed));
        let mut seeds: Vec<_> = seeds.map(|seed| (seed.clone(), None)).collect();
        fastrand::shuffle(&mut seeds);
        nodes.extend(seeds);
        let mut failed = None;
        for (address, node) in nodes {
            let bound = self.timeout * 2;
            let asking = tokio::time::timeout(bound, self.ask(&address, node.as_ref()));
            match asking.await {
                Ok(Ok(owned)) => return self.take_in(&owned),
                Ok(Err(error)) if !error.is_unavailable() => return Err(error),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => {
                    failed = Some(Error::unavailable(format!(
                        "{address} (of {}) did not answer within {bound:?}",
                        self.name
                    )));
                }
            }
        }
        let error = failed
            .unwrap_or_else(|| Error::unavailable(format!("no node of {} is known", self.name)));
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        map.error = Some(error.clone());
        Err(error)
    }

    async fn ask(&self, address: &Address, node: Option<&Connector>) -> Result<Vec<Owned>, Error> {
        let server = || format!("{address} (of {})", self.name);
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let answer = match node.filter(|node| node.address().is_some()) {
            Some(node) => node.send(&slots, false, 0).await.map_err(|it| it.told(&server(), ""))?,
            None => {
                let client = self.access.client(address)?;
                let asking = async {
                    let mut connection = connect(&client).await?;
                    slots.query_async::<Value>(&mut connection).await
                };
                asking.await.map_err(|error| {
                    if error.detail().is_some_and(|it| it.contains("cluster support disabled")) {
                        return Error::incompatible(format!(
                            "{address} is not a node of a Cluster; name the store redis://"
                        ));
                    }
                    no_connection(&error, &server())
                })?
            }
        };
        let owned = owned(&answer, address)
            .ok_or_else(|| Error::incompatible(format!("{}: odd CLUSTER SLOTS", server())))?;
        if owned.is_empty() {
            return Err(Error::unavailable(format!("{}: no node has any slot", server())));
        }
        Ok(owned)
    }

    fn take_in(&self, owned: &[Owned]) -> Result<(), Error> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut owners = vec![None; usize::from(SLOTS)];
        for (first, last, address) in owned {
            let node = self.node(&mut map, address)?;
            if let Some(owners) = owners.get_mut(usize::from(*first)..=usize::from(*last)) {
                owners.fill(Some(node));
            }
        }
        map.owners = owners;
        map.error = None;
        map.nodes.retain(|address, _| owned.iter().any(|(_, _, owner)| owner == address));
        drop(map);
        self.readings.send_modify(|readings| *readings += 1);
        Ok(())
    }

    /// Whether every node that has slots is connected to.
    fn is_whole(&self) -> bool {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.error.is_none() && map.nodes.values().all(|node| node.address().is_some())
    }
}

/// Reads the map whenever somebody has it stirred, and until all its nodes are there.
async fn tend(shared: Weak<Shared>) {
    loop {
        {
            let Some(shared) = shared.upgrade() else { return };
            // A while at a time, so that the end of the store is noticed.
            let stirred = tokio::time::timeout(PAUSE_LONGEST, shared.stirred.notified());
            if stirred.await.is_err() {
                continue;
            }
        }
        let mut pause = PAUSE_FIRST;
        loop {
            let Some(shared) = shared.upgrade() else { return };
            if let Err(error) = shared.read().await {
                tracing::debug!(cluster = shared.name, %error, "who has which slot is not known");
            }
            let whole = shared.is_whole();
            drop(shared);
            tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            if whole {
                break;
            }
            pause = (pause * 2).min(PAUSE_LONGEST);
        }
    }
}

/// Reads the answer to CLUSTER SLOTS: first and last slot, then the primary and its replicas as
/// host, port and more.
fn owned(answer: &Value, asked: &Address) -> Option<Vec<Owned>> {
    let Value::Array(runs) = answer else { return None };
    let slot = |value: &Value| match value {
        Value::Int(slot) => u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    };
    let mut owned = Vec::new();
    for run in runs {
        let Value::Array(run) = run else { return None };
        let [first, last, Value::Array(primary), ..] = &run[..] else { return None };
        let [host, Value::Int(port), ..] = &primary[..] else { return None };
        let host = match host {
            Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
            Value::Nil => String::new(),
            _ => return None,
        };
        let address = Address::told(&format!("{host}:{port}"), asked)?;
        owned.push((slot(first)?, slot(last)?, address));
    }
    Some(owned)
}

/// The slot of a key: CRC16 (XMODEM) of what stands between the first brace and the next closing
/// one, or of all of it where nothing does (Redis Cluster specification, Hash tags).
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let behind = &key[open + 1..];
        let length = behind.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &behind[..length])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_that_of_the_hash_tag() {
        // From the specification, and from a server's CLUSTER KEYSLOT.
        for (key, wanted) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{foo}", 12_182),
            ("paceline:{foo}", 12_182),
            ("a{foo}{bar}", 12_182),
            ("{}foo", slot(b"{}foo")),
            ("", 0),
        ] {
            assert_eq!(slot(key.as_bytes()), wanted, "{key}");
        }
        assert_ne!(slot(b"{}foo"), slot(b"foo"));
    }

    #[test]
    fn an_odd_map_is_none() {
        let asked = Address { host: "h".to_owned(), port: 1 };
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let run = |first, last, host, port| {
            let node = Value::Array(vec![host, Value::Int(port), bulk("id")]);
            Value::Array(vec![Value::Array(vec![Value::Int(first), Value::Int(last), node])])
        };
        let read = |answer| owned(&answer, &asked).map(|it| it[0].2.to_string());
        assert_eq!(read(run(0, 5, bulk("a"), 7)).as_deref(), Some("a:7"));
        assert_eq!(read(run(0, 5, Value::Nil, 7)).as_deref(), Some("h:7"));
        assert_eq!(read(run(0, 16_384, bulk("a"), 7)), None);
        assert_eq!(read(run(-1, 5, bulk("a"), 7)), None);
        assert_eq!(read(run(0, 5, bulk("a"), 0)), None);
        assert_eq!(read(Value::Array(vec![Value::Nil])), None);
        assert_eq!(read(Value::Okay), None);
    }
}
