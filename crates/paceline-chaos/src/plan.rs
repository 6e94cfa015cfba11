//! What happens in a run: which servers, which policy, and one fault after the other. All of it
//! comes from the seed; how long a failover takes does not.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// Buckets of a run; in a Cluster they lie on different nodes.
pub(crate) const BUCKETS: [&str; 3] = ["alpha", "beta", "gamma"];
/// The interval that the provider counts in.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// Worker processes, and callers in each.
pub(crate) const WORKERS: usize = 4;
pub(crate) const CALLERS: usize = 6;

/// A run to come.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) servers: Servers,
    pub(crate) policy: &'static str,
    /// What the provider lets pass in one interval, a bucket.
    pub(crate) limit: usize,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Servers {
    /// One, behind wires that break.
    One,
    /// A primary and two replicas behind three sentinels.
    Sentinel,
    /// Three primaries with a replica each.
    Cluster,
}

/// A fault, how long it lasts where it does not last by itself, and the quiet after it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
    pub(crate) quiet: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    // To the wire.
    Stall,
    SwallowReplies,
    Cut,
    Delay(u64),
    HalfOpen,
    /// The time that the script sees steps by so many seconds, to so many from the true one.
    ClockStep {
        by: i64,
        to: i64,
    },
    // To servers. Which bucket's server it is comes with it.
    Pause(usize),
    /// Killed and started again, empty.
    Restart,
    Flush,
    FlushScripts,
    /// Killed; a replica takes over.
    Kill(usize),
    /// Asked to hand over to its replica.
    FailOver(usize),
    /// Stopped until another has taken over.
    Freeze,
    KillSentinel(usize),
    /// The bucket's slot goes to another primary.
    MoveSlot(usize),
    // To workers.
    KillWorker(usize),
    PauseWorker(usize),
    /// Somebody suspends a bucket.
    Suspend(usize),
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let servers = [Servers::One, Servers::Sentinel, Servers::Cluster][(seed % 3) as usize];
        // Guards that cover what a loaded machine adds to a call's way.
        let (policy, limit) = [
            ("strict 30/s guard 200ms", 30),
            ("window 40/s guard 200ms", 40),
            ("30/s burst 5 guard 200ms", 35),
        ][rng.usize(..3)];
        let mut steps = Vec::new();
        let (mut takeovers, mut killed, mut sentinels, mut stepped) = (0, false, 3, 0);
        while steps.len() < 5 {
            let mut fault = Fault::any(servers, &mut rng);
            match (fault, servers) {
                (Fault::ClockStep { by, .. }, _) => {
                    stepped += by;
                    fault = Fault::ClockStep { by, to: stepped };
                }
                // A node whose replica is gone has nobody to take over.
                (Fault::Kill(_) | Fault::FailOver(_), Servers::Cluster) if killed => continue,
                (Fault::Kill(_), Servers::Cluster) => killed = true,
                // There are two replicas.
                (Fault::Kill(_) | Fault::FailOver(_) | Fault::Freeze, _) if takeovers == 2 => {
                    continue;
                }
                (Fault::Kill(_) | Fault::FailOver(_) | Fault::Freeze, _) => takeovers += 1,
                // Two of three have to agree.
                (Fault::KillSentinel(_), _) if sentinels == 2 => continue,
                (Fault::KillSentinel(_), _) => sentinels -= 1,
                _ => {}
            }
            let lasts = Duration::from_millis(rng.u64(200..2_500));
            let mut quiet = Duration::from_millis(rng.u64(300..1_500));
            if servers == Servers::Sentinel
                && matches!(fault, Fault::Kill(_) | Fault::FailOver(_) | Fault::Freeze)
            {
                // Sentinels promote nobody while the others do not follow the last one.
                quiet += Duration::from_secs(4);
            }
            steps.push(Step { fault, lasts, quiet });
        }
        Self { seed, servers, policy, limit, steps }
    }
}

impl Fault {
    fn any(servers: Servers, rng: &mut Rng) -> Self {
        let bucket = rng.usize(..BUCKETS.len());
        let worker = rng.usize(..WORKERS);
        let common = [
            Self::FlushScripts,
            Self::Pause(bucket),
            Self::KillWorker(worker),
            Self::PauseWorker(worker),
            Self::Suspend(bucket),
        ];
        let own: &[Self] = match servers {
            Servers::One => &[
                Self::Stall,
                Self::SwallowReplies,
                Self::Cut,
                Self::Delay(rng.u64(5..60)),
                Self::HalfOpen,
                Self::ClockStep { by: rng.i64(1..=3_600), to: 0 },
                Self::ClockStep { by: -rng.i64(1..=3_600), to: 0 },
                Self::Restart,
                Self::Flush,
            ],
            Servers::Sentinel => &[
                Self::Kill(0),
                Self::FailOver(0),
                Self::Freeze,
                Self::KillSentinel(rng.usize(..3)),
            ],
            Servers::Cluster => {
                &[Self::Kill(bucket), Self::FailOver(bucket), Self::MoveSlot(bucket)]
            }
        };
        let pick = rng.usize(..common.len() + 2 * own.len());
        match common.get(pick) {
            Some(fault) => *fault,
            // What is peculiar to these servers comes twice as often.
            None => own[(pick - common.len()) / 2],
        }
    }

    /// Whether buckets may forget what was used. Then a window may hold twice the limit: once what
    /// was used before and once what is used after. Nothing else may take a window over its limit.
    pub(crate) fn forgets(self, servers: Servers) -> bool {
        match self {
            Self::Restart | Self::Flush | Self::Kill(_) | Self::Freeze => true,
            // A Cluster's replica has all before it takes over, sentinels do not wait for that.
            Self::FailOver(_) => servers == Servers::Sentinel,
            // A bucket that has not been used for so long is full.
            Self::ClockStep { by, .. } => by > 0,
            _ => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stall => f.write_str("wire stalls"),
            Self::SwallowReplies => f.write_str("replies are lost"),
            Self::Cut => f.write_str("wire is cut"),
            Self::Delay(ms) => write!(f, "wire takes {ms} ms more"),
            Self::HalfOpen => f.write_str("connections are half open"),
            Self::ClockStep { by, .. } => write!(f, "server's clock steps {by:+} s"),
            Self::Pause(_) => f.write_str("server stops and goes on"),
            Self::Restart => f.write_str("server restarts empty"),
            Self::Flush => f.write_str("server is flushed"),
            Self::FlushScripts => f.write_str("scripts are flushed"),
            Self::Kill(_) => f.write_str("primary is killed"),
            Self::FailOver(_) => f.write_str("primary hands over"),
            Self::Freeze => f.write_str("primary is frozen until replaced"),
            Self::KillSentinel(_) => f.write_str("a sentinel is killed"),
            Self::MoveSlot(_) => f.write_str("slot moves"),
            Self::KillWorker(_) => f.write_str("worker is killed"),
            Self::PauseWorker(_) => f.write_str("worker stops and goes on"),
            Self::Suspend(_) => f.write_str("bucket is suspended"),
        }
    }
}
