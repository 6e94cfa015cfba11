//! What one node knows of the cluster: its answer to `CLUSTER NODES`.

use std::ops::RangeInclusive;

/// One line: one node as another sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: String,
    flags: Vec<String>,
    /// The id of its primary, if it is a replica.
    pub(super) primary: Option<String>,
    pub(super) epoch: u64,
    connected: bool,
    slots: Vec<RangeInclusive<u16>>,
    /// Of the node that answers alone: slots on their way out, and to whom.
    migrating: Vec<(u16, String)>,
}

impl Seen {
    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.is("master") && self.slots.iter().any(|slots| slots.contains(&slot))
    }

    pub(super) fn migrates_to(&self, slot: u16) -> Option<&str> {
        self.migrating.iter().find(|(s, _)| *s == slot).map(|(_, id)| id.as_str())
    }

    /// Whether it can be reached, and no handshake or doubt is left.
    pub(super) fn is_well(&self) -> bool {
        let doubts = ["handshake", "noaddr", "fail", "fail?"];
        (self.connected || self.is("myself")) && !doubts.iter().any(|doubt| self.is(doubt))
    }
}

/// The lines that can be read; a node in the middle of a handshake may look like nothing.
pub(super) fn parse(nodes: &str) -> Vec<Seen> {
    nodes.lines().filter_map(line).collect()
}

/// `id ip:port@bus flags primary|- ping pong epoch connected slots..`, where a slot is `7`, a range
/// `1-5`, one that leaves `[7->-id]`, one that comes `[7-<-id]`.
fn line(line: &str) -> Option<Seen> {
    let words: Vec<_> = line.split(' ').collect();
    let [id, _addr, flags, primary, _ping, _pong, epoch, link, slots @ ..] = &words[..] else {
        return None;
    };
    let range = |slots: &&str| {
        let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    let migrating = |slot: &&str| {
        let (slot, to) = slot.strip_prefix('[')?.strip_suffix(']')?.split_once("->-")?;
        Some((slot.parse().ok()?, to.to_owned()))
    };
    Some(Seen {
        id: (*id).to_owned(),
        flags: flags.split(',').map(str::to_owned).collect(),
        primary: (*primary != "-").then(|| (*primary).to_owned()),
        epoch: epoch.parse().ok()?,
        connected: *link == "connected",
        slots: slots.iter().filter_map(range).collect(),
        migrating: slots.iter().filter_map(migrating).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_slots_that_stay_leave_and_come() {
        let nodes = "aa 127.0.0.1:1@2 myself,master - 0 0 3 connected 0-5 9 [9->-bb] [12-<-cc]\n\
            bb 127.0.0.1:3@4 slave,fail? aa 0 1 2 disconnected\n";
        let [a, b] = &parse(nodes)[..] else { panic!("two nodes") };
        assert!(a.owns(0) && a.owns(5) && a.owns(9) && !a.owns(6) && !a.owns(12));
        assert_eq!((a.migrates_to(9), a.migrates_to(12), a.epoch), (Some("bb"), None, 3));
        assert!(a.is_well() && a.is("myself") && a.primary.is_none());
        assert!(!b.is_well() && b.primary.as_deref() == Some("aa"));
    }
}
