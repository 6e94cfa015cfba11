//! Fleets that start with a wrong quota before a provider whose answers would teach them: refusals
//! until they hold, whether they go on being refused, and what of the quota they use. Real processes
//! over HTTP on loopback, behind the middleware that users have. The table is what is run.

mod dialect;
mod provider;
mod quota;
mod verdict;
pub(crate) mod worker;

use paceline_testkit::{RedisServer, scratch_dir};

use self::dialect::Dialect;
use self::provider::{Arrival, Provider, Rival, Script};
use self::quota::{Quota, Way};
use self::verdict::{Halt, Phase};
use self::worker::{Job, Worker};
use crate::Figure;

/// The hidden first word of a run whose record is wanted.
pub(crate) const RECORD: &str = "teach-record";
/// The provider's quota: 50 calls a second, in windows of five seconds.
const LIMIT: i64 = 250;
const INTERVAL_S: i64 = 5;

/// What the fleet believes at its start.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Start {
    /// A profile that says so many times the provider's quota.
    Times(f64),
    /// No profile: the policy for everybody, one call a second.
    Nothing,
}

/// One run of a fleet of eight processes of twenty callers.
#[derive(Debug, Clone, PartialEq)]
struct Lesson {
    name: String,
    dialect: Dialect,
    way: Way,
    /// Windows of 50 calls a second.
    interval_s: i64,
    /// A phase, half of which is for learning.
    phase_s: u64,
    start: Start,
    /// Whether the quota is halved after one phase, and doubled after another.
    changes: bool,
    rival: Option<Rival>,
    redis: bool,
    /// Targets that the callers of a process share out among them.
    targets: usize,
    wanted: Wanted,
}

/// What is wanted of each phase; refusals after it holds are never wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Wanted {
    refusals: usize,
    share: f64,
    /// A target of the product; else a trial beyond them, which only a word brings up.
    is_target: bool,
}

/// All figures whose name holds the word; with none, those that have a target.
pub(crate) fn figures(word: &str) -> impl Iterator<Item = Figure> {
    let is_wanted = |name: &str, is_target: bool| {
        if word.is_empty() { is_target } else { name.contains(word) }
    };
    let mut runs: Vec<Box<dyn FnOnce() -> Figure>> = Vec::new();
    for lesson in lessons() {
        if is_wanted(&lesson.name, lesson.wanted.is_target) {
            runs.push(Box::new(move || taught(&lesson)));
        }
    }
    for redis in [false, true] {
        let name = format!("teach, C38, Retry-After 30, {}", store_name(redis));
        if is_wanted(&name, true) {
            runs.push(Box::new(move || halted(&name, redis)));
        }
        let name = format!("teach, C37, a retired target, {}", store_name(redis));
        if is_wanted(&name, false) {
            runs.push(Box::new(move || undisturbed(&name, redis)));
        }
    }
    runs.into_iter().map(|run| run())
}

/// The table. What the issue sets a target for comes first.
fn lessons() -> Vec<Lesson> {
    let informative = Wanted { refusals: 8, share: 0.9, is_target: true };
    let silent = Wanted { refusals: 40, ..informative };
    let wanted_of = |dialect: Dialect| if dialect.tells_limit() { informative } else { silent };
    let trial = |wanted: Wanted| Wanted { is_target: false, ..wanted };
    let rival = |bursts| Some(Rival { share: 0.3, bursts });
    let base = |name: &str, dialect: Dialect, start: Start| Lesson {
        name: format!("teach, {name}, {}", dialect.name()),
        dialect,
        way: Way::Fixed,
        // A limit that is told is known after a call. To find one takes windows, so they are short.
        interval_s: if dialect.tells_limit() { INTERVAL_S } else { 2 },
        phase_s: if dialect.tells_limit() { 40 } else { 120 },
        start,
        changes: false,
        rival: None,
        redis: true,
        targets: 20,
        wanted: wanted_of(dialect),
    };
    let twice = Start::Times(2.0);
    let right = Start::Times(1.0);
    let mut all = vec![
        base("twice the quota", Dialect::Epoch, twice),
        base("twice the quota", Dialect::Bare, twice),
        Lesson { rival: rival(false), ..base("second client of 30 %", Dialect::Epoch, right) },
    ];
    let mut add = |lesson: Lesson| all.push(Lesson { wanted: trial(lesson.wanted), ..lesson });
    for (dialect, _) in Dialect::ALL {
        if !matches!(dialect, Dialect::Epoch | Dialect::Bare) {
            add(base("twice the quota", dialect, twice));
        }
    }
    for dialect in [Dialect::Epoch, Dialect::Structured, Dialect::RetryAfter, Dialect::Bare] {
        add(base("ten times the quota", dialect, Start::Times(10.0)));
        add(base("a tenth of the quota", dialect, Start::Times(0.1)));
        add(base("no policy", dialect, Start::Nothing));
        add(Lesson { changes: true, ..base("halved, then doubled", dialect, right) });
        let bursts = base("second client in bursts", dialect, right);
        add(Lesson { rival: rival(true), ..bursts });
    }
    add(Lesson { rival: rival(false), ..base("second client of 30 %", Dialect::Bare, right) });
    for dialect in [Dialect::Epoch, Dialect::Bare] {
        for (way, name) in [(Way::Sliding, "sliding"), (Way::Bucket, "token bucket")] {
            add(Lesson { way, ..base(&format!("twice the quota, {name}"), dialect, twice) });
        }
        let host = base("twice the quota, host store", dialect, twice);
        add(Lesson { redis: false, ..host });
        let one = base("twice the quota, one target", dialect, twice);
        add(Lesson { targets: 1, ..one });
    }
    all
}

/// Runs a lesson to its end.
fn taught(lesson: &Lesson) -> Figure {
    let Lesson { dialect, way, interval_s, phase_s, .. } = *lesson;
    let limit = 50 * interval_s;
    let quota = Quota { way, limit, interval_us: interval_s * 1_000_000 };
    let changes = match lesson.changes {
        true => vec![(phase_s, limit / 2), (2 * phase_s, limit)],
        false => Vec::new(),
    };
    let seconds = phase_s * (1 + changes.len() as u64);
    let script =
        Script { quota, dialect, changes: changes.clone(), rival: lesson.rival, once: None };
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "a limit")]
    let profile = match lesson.start {
        Start::Times(times) => {
            let policy = format!("strict {}/{interval_s}s", (limit as f64 * times) as i64);
            Some(dialect.profile(worker::HOST, &policy, interval_s))
        }
        Start::Nothing => None,
    };
    let fleet = Fleet { profile, targets: lesson.targets, ..Fleet::new(lesson.redis, seconds) };
    let (arrivals, age_us) = fleet.record(&script);
    let phases = verdict::phases(&arrivals, quota, &changes, seconds, age_us);
    let Wanted { refusals, share, .. } = lesson.wanted;
    let holds = |it: &Phase| it.learning <= refusals && it.after == 0 && it.share >= share;
    Figure {
        what: lesson.name.clone(),
        target: format!("{refusals} 429s, then 0, {:.0} %", share * 100.0),
        measured: phases.iter().map(told).collect::<Vec<_>>().join("; "),
        met: phases.iter().all(holds),
    }
}

fn told(phase: &Phase) -> String {
    let Phase { learning, last_s, after, share } = phase;
    format!("{learning} 429s in {last_s:.1} s, then {after}, {:.1} %", share * 100.0)
}

/// Twenty workers on four processes, and one is told to stay away: nobody starts a call until then.
fn halted(name: &str, redis: bool) -> Figure {
    let span_s = 30;
    let arrivals = run_halted(redis, 4, span_s);
    let halt = verdict::halt(&arrivals, span_s).expect("somebody was refused");
    let Halt { at_first, later, last_us, resumed_us } = halt;
    let resumed = resumed_us.map_or("never again".to_owned(), |us| format!("again {us} us after"));
    Figure {
        what: name.to_owned(),
        target: "no start after 100 ms".to_owned(),
        measured: format!(
            "{later} later, {at_first} before, the last at {} ms; {resumed}",
            last_us / 1_000
        ),
        met: later == 0 && resumed_us.is_some(),
    }
}

fn run_halted(redis: bool, at_s: u64, span_s: u64) -> Vec<Arrival> {
    let script = Script { once: Some((at_s, span_s)), ..within(Dialect::Bare) };
    let policy = Some(format!("strict {LIMIT}/{INTERVAL_S}s"));
    let fleet = Fleet::new(redis, at_s + span_s + 4);
    Fleet { processes: 4, callers: 5, policy, ..fleet }.run(&script)
}

/// Ten callers of which one is always refused with nothing said: the nine keep their pace.
fn undisturbed(name: &str, redis: bool) -> Figure {
    let seconds = 20;
    let arrivals = run_undisturbed(redis, seconds);
    let refused = arrivals.iter().filter(|it| it.verdict == provider::Verdict::Retired).count();
    let (a_second, gap_us) = verdict::pace(&arrivals, seconds);
    Figure {
        what: name.to_owned(),
        target: "45 a second of 50".to_owned(),
        measured: format!("{a_second:.1} a second, {} ms apart, {refused} 429s", gap_us / 1_000),
        met: a_second >= 45.0,
    }
}

fn run_undisturbed(redis: bool, seconds: u64) -> Vec<Arrival> {
    let policy = Some(format!("strict {LIMIT}/{INTERVAL_S}s"));
    let fleet = Fleet { processes: 1, callers: 10, policy, ..Fleet::new(redis, seconds) };
    Fleet { retired: true, ..fleet }.run(&within(Dialect::Bare))
}

/// Prints the provider's record of a short run, for tests to judge: when a call arrived, when it went
/// out, whose it was and what became of it.
pub(crate) fn record(words: &[String]) {
    let [run, store, seconds] = words else { panic!("three words: {words:?}") };
    let redis = store == store_name(true);
    let seconds = seconds.parse().expect("a number");
    let arrivals = match run.as_str() {
        "halted" => run_halted(redis, 1, seconds),
        "undisturbed" => run_undisturbed(redis, seconds),
        _ => panic!("halted or undisturbed: {run}"),
    };
    for Arrival { at_us, started_us, worker, verdict } in arrivals {
        println!("{at_us} {started_us} {} {verdict:?}", worker.unwrap_or_default());
    }
}

/// A provider that nobody comes near the limit of.
fn within(dialect: Dialect) -> Script {
    let quota = Quota { way: Way::Fixed, limit: 10 * LIMIT, interval_us: INTERVAL_S * 1_000_000 };
    Script { quota, dialect, changes: Vec::new(), rival: None, once: None }
}

/// The processes of a run.
struct Fleet {
    redis: bool,
    processes: usize,
    callers: usize,
    targets: usize,
    retired: bool,
    policy: Option<String>,
    profile: Option<String>,
    seconds: u64,
}

impl Fleet {
    fn new(redis: bool, seconds: u64) -> Self {
        let (policy, profile) = (None, None);
        let (processes, callers, targets, retired) = (8, 20, 20, false);
        Self { redis, processes, callers, targets, retired, policy, profile, seconds }
    }

    /// Lets it run before a provider; all calls that arrived.
    fn run(&self, script: &Script) -> Vec<Arrival> {
        self.record(script).0
    }

    /// The same, and how long before the first of them the provider's first window began.
    fn record(&self, script: &Script) -> (Vec<Arrival>, i64) {
        let server = self.redis.then(RedisServer::start);
        let folder = scratch_dir("teach");
        let store = match &server {
            Some(server) => server.url(),
            None => format!("host:{}", folder.path().display()),
        };
        let provider = Provider::start(script);
        let job = Job {
            store,
            provider: provider.addr(),
            policy: self.policy.clone(),
            profile: self.profile.clone(),
            callers: self.callers,
            targets: self.targets,
            retired: self.retired,
            seconds: self.seconds,
        };
        let mut workers: Vec<Worker> = (0..self.processes)
            .map(|number| {
                Worker::start(number, &Job { retired: job.retired && number == 0, ..job.clone() })
            })
            .collect();
        workers.iter_mut().for_each(Worker::go);
        let told: Vec<_> = workers.iter_mut().map(Worker::told).collect();
        assert_eq!(told.iter().map(|it| it.errors).sum::<u64>(), 0, "the store answers");
        assert!(told.iter().map(|it| it.answers).sum::<u64>() > 0, "the provider answers");
        (provider.arrivals(), provider.age_us())
    }
}

fn store_name(redis: bool) -> &'static str {
    if redis { "redis" } else { "host" }
}
