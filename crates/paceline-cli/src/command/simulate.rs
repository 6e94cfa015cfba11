//! `paceline simulate`: what a policy would do, before anybody pays for it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use paceline::{Policy, STORE_DEFAULT, duration::Exact};
use paceline_sim::chart::{self, Letters};
use paceline_sim::{
    Demand, ProviderSpec, Report, Scenario, SimulationError, StoreKind, TIMEOUT_US,
};

use crate::exit::{Exit, Failure};
use crate::number::whole;
use crate::output;
use crate::run::Context;
use crate::store::span;

/// Show what a policy would do before a provider, in virtual time.
///
/// A fleet shares one bucket and calls a provider that counts strictly; the same seed gives the
/// same run. Nothing is asked of a real store or network: of --store only the kind matters, redis
/// or host. Ends with 0 whatever the provider answered; the table and the chart tell of 429s. Ends
/// with 1 only where Paceline broke a promise of its own, which is a fault worth reporting.
///
///   paceline simulate --quota 'strict 100/m' --provider 'sliding 100/m'
///   paceline simulate --quota 100/m --provider 'bucket 100/m capacity 10 ban 30s' --seconds 600
///
/// A provider is KIND LIMIT/INTERVAL [capacity B] [ban D]. The kinds:
///   sliding      at most the limit in any span of the interval
///   fixed        in each interval; when they begin is the provider's secret
///   first        in an interval that begins with its first call
///   counter      a sliding window reckoned from two counts, rounded down
///   counter-up   the same rounded up: a whole call must fit
///   bucket       a bucket of tokens that refills the limit in each interval
///   leaky        a meter that each call fills by one and each tick lowers by one
///   spacing      a smallest gap between calls: the interval divided by the limit
///   concurrency  at most the limit under way at once; an answer takes the interval
/// The capacity of bucket and leaky is the limit unless said. A ban is how long everything is
/// refused once a call was.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Simulate {
    /// The policy, such as 'strict 100/m' or '50/s burst 10, window 1000/m guard 50ms'
    #[arg(long, short, value_name = "POLICY", allow_hyphen_values = true)]
    quota: Policy,

    /// How the provider counts, such as 'sliding 50/s' or 'fixed 100/m ban 30s'
    #[arg(long, short, value_name = "PROVIDER", allow_hyphen_values = true)]
    provider: ProviderSpec,

    /// Processes that share the bucket
    #[arg(long, value_name = "N", default_value_t = 8, allow_hyphen_values = true, value_parser = whole::<u16>(1..=1_000))]
    processes: u16,

    /// Callers in each of them, with one call each at a time
    #[arg(long, value_name = "N", default_value_t = 20, allow_hyphen_values = true, value_parser = whole::<u16>(1..=10_000))]
    callers: u16,

    /// How long it runs, in virtual seconds
    #[arg(long, value_name = "S", default_value_t = 60, allow_hyphen_values = true, value_parser = whole::<u32>(1..=86_400))]
    seconds: u32,

    /// A call's way to the provider takes up to this
    #[arg(long, value_name = "SPAN", default_value = "10ms", allow_hyphen_values = true, value_parser = span)]
    jitter: Duration,

    /// The way to the store takes this, and the way back; together less than the 250ms that one
    /// operation may take
    #[arg(long, value_name = "SPAN", default_value = "200us", allow_hyphen_values = true, value_parser = delay)]
    delay: Duration,

    /// The provider's answer takes this, at least
    #[arg(long, value_name = "SPAN", default_value = "0s", allow_hyphen_values = true, value_parser = span)]
    answer: Duration,

    /// When callers call: saturated (always), on-off or 'on-off ON/OFF' (by turns), or N/s (each
    /// caller at random moments, so many a second)
    #[arg(long, value_name = "DEMAND", default_value_t = Demand::Saturated, allow_hyphen_values = true)]
    demand: Demand,

    /// Repeat a run [default: another each time, told in the report]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,

    /// Draw the chart with these letters [default: unicode on a terminal, else no chart]
    #[arg(long, value_name = "LETTERS", value_enum, hide_possible_values = true)]
    chart: Option<Chart>,

    /// Write the chart to this file as an SVG, too
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What the chart is drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Chart {
    /// Blocks
    Unicode,
    /// Plain ASCII, the table's lines, too
    Ascii,
    /// No chart
    None,
}

impl Simulate {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        if !self.quota.is_plain() {
            let words = format!(
                "{:?}: simulated calls are of requests alone; leave out the quotas of other units",
                self.quota.as_str()
            );
            return Err(Failure::new(Exit::USAGE, words));
        }
        let scenario = Scenario {
            processes: self.processes.into(),
            callers: self.callers.into(),
            demand: self.demand,
            duration_us: i64::from(self.seconds) * 1_000_000,
            jitter_us: micros(self.jitter),
            delay_us: micros(self.delay),
            answer_us: micros(self.answer),
            store: store_kind(&context.store.store)?,
            // Short enough to be typed again.
            seed: self.seed.unwrap_or_else(|| fastrand::u32(..).into()),
            ..Scenario::new(self.quota, self.provider)
        };
        // Before the run, which may take a while.
        let svg = self.svg.as_deref().map(Svg::open).transpose()?;
        let report =
            paceline_sim::simulate(&scenario).map_err(|error| failed(&scenario, &error))?;
        if context.json {
            output::json(&report)?;
        } else {
            let chart = self.chart.unwrap_or(if std::io::stdout().is_terminal() {
                Chart::Unicode
            } else {
                Chart::None
            });
            output::line(&text(&scenario, &report, chart))?;
            match chart {
                Chart::Unicode => output::line(&chart::terminal(&report, Letters::Unicode))?,
                Chart::Ascii => output::line(&chart::terminal(&report, Letters::Ascii))?,
                Chart::None => {}
            }
        }
        if let Some(svg) = svg {
            svg.write(&chart::svg(&report))?;
        }
        Ok(Exit::DONE)
    }
}

/// The kind of a store by its URL's scheme, or by the scheme alone: nothing is opened.
fn store_kind(store: &str) -> Result<StoreKind, Failure> {
    // An empty variable is one that is not set.
    let store = if store.is_empty() { STORE_DEFAULT } else { store };
    match store.split(':').next().unwrap_or_default() {
        "redis" | "rediss" | "redis+sentinel" | "redis-cluster" => Ok(StoreKind::Redis),
        "host" => Ok(StoreKind::Host),
        "memory" => Err(Failure::new(
            Exit::USAGE,
            "processes share nothing through memory:; simulate with --store redis or --store host",
        )),
        // Only the scheme: what follows may hold a password.
        scheme => Err(Failure::new(
            Exit::USAGE,
            format!("store {scheme:?} cannot be simulated: use --store redis or --store host"),
        )),
    }
}

/// The delay to a store. One with which no answer comes in time would simulate a store that is away.
fn delay(text: &str) -> Result<Duration, String> {
    let delay = span(text)?;
    if micros(delay).saturating_mul(2) >= TIMEOUT_US {
        return Err(format!(
            "too long: there and back must take less than the {} that one operation on the store may \
             take; write less than {}",
            Exact(TIMEOUT_US),
            Exact(TIMEOUT_US / 2)
        ));
    }
    Ok(delay)
}

/// The file that gets the chart, opened before it is written. What it held stays until then.
struct Svg<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Svg<'a> {
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = File::options().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| {
            Failure::new(
                Exit::IO,
                format!(
                    "cannot write --svg {}: {error}; name a file that you may write to, in a folder \
                     that is there",
                    path.display()
                ),
            )
        })?;
        Ok(Self { path, file })
    }

    fn write(mut self, svg: &str) -> Result<(), Failure> {
        self.replace(svg).map_err(|error| {
            let path = self.path.display();
            let words =
                format!("cannot write --svg {path}: {error}; make room, or name another file");
            Failure::new(Exit::IO, words)
        })
    }

    fn replace(&mut self, svg: &str) -> io::Result<()> {
        // A pipe or a device has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(svg.as_bytes())
    }
}

/// A run that came to no report.
fn failed(scenario: &Scenario, error: &SimulationError) -> Failure {
    let words = match error {
        SimulationError::Broken(broken) => format!(
            "{broken}; this is a fault of Paceline and not of what you asked for: please report it \
             with these words and this command: {}",
            command_line(scenario)
        ),
        SimulationError::Scenario(_) => format!("nothing to simulate: {error}"),
    };
    Failure::new(Exit::FAILED, words)
}

/// What repeats a run, whatever was left out when it was asked for.
fn command_line(scenario: &Scenario) -> String {
    let Scenario { policy, provider, processes, callers, demand, seed, .. } = scenario;
    format!(
        "paceline simulate --quota '{policy}' --provider '{provider}' --processes {processes} \
         --callers {callers} --seconds {} --jitter {} --delay {} --answer {} --demand '{demand}' \
         --store {} --seed {seed}",
        scenario.duration_us / 1_000_000,
        Exact(scenario.jitter_us),
        Exact(scenario.delay_us),
        Exact(scenario.answer_us),
        store_name(scenario.store),
    )
}

fn store_name(store: StoreKind) -> &'static str {
    match store {
        StoreKind::Redis => "redis",
        StoreKind::Host => "host",
    }
}

fn text(scenario: &Scenario, report: &Report, chart: Chart) -> String {
    let Scenario { processes, callers, demand, .. } = scenario;
    let span_us = |us: i64| output::span(Duration::from_micros(us.unsigned_abs()));
    let store = store_name(scenario.store);
    let mut table = Table::new();
    *table.style_mut() = match chart {
        Chart::Ascii => presets::ASCII_FULL_CONDENSED,
        Chart::Unicode | Chart::None => presets::UTF8_FULL_CONDENSED,
    };
    table.set_header(["calls", "429s", "quota used", "wait p50", "p90", "p99", "longest"]);
    table.add_row([
        report.calls.to_string(),
        report.refused.to_string(),
        format!("{:.1} %", report.share * 100.0),
        span_us(report.waits.p50_us),
        span_us(report.waits.p90_us),
        span_us(report.waits.p99_us),
        span_us(report.waits.max_us),
    ]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let head = [
        ("provider", report.provider.clone()),
        ("policy", report.policy.clone()),
        (
            "fleet",
            format!(
                "{processes} processes of {callers} callers, {demand}, {} of virtual time",
                span_us(report.simulated_us)
            ),
        ),
        (
            "network",
            format!(
                "up to {} to the provider, {} to {store} and as long back",
                span_us(scenario.jitter_us),
                span_us(scenario.delay_us)
            ),
        ),
        ("seed", report.seed.to_string()),
    ];
    let foot = [
        (
            "store",
            format!(
                "{:.2} operations a call, {} in all",
                report.operations_per_call, report.store_operations
            ),
        ),
        (
            "fairness",
            format!("{:.3}, {} to {} calls a process", report.fairness, report.fewest, report.most),
        ),
        ("verdict", verdict(report)),
    ];
    let lines = |lines: &[(&str, String)]| {
        let lines = lines.iter().map(|(name, value)| format!("{name:<10} {value}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    [lines(&head), table.trim_fmt(), lines(&foot)].join("\n")
}

/// What matters most, in a line of its own.
fn verdict(report: &Report) -> String {
    match (report.refused, report.calls) {
        (_, 0) => "no call went out".to_owned(),
        (0, calls) => format!("none of {calls} calls refused"),
        (refused, calls) => format!("{refused} of {calls} refused with 429"),
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::run::Cli;

    #[test]
    fn a_broken_property_is_told_as_our_fault_with_the_command_that_repeats_it() {
        let scenario = Scenario {
            store: StoreKind::Host,
            seed: 9,
            ..Scenario::new("strict 5/s".parse().unwrap(), "sliding 5/s ban 3s".parse().unwrap())
        };
        let broken = paceline_sim::Broken {
            property: "P1",
            what: "six calls in a second".to_owned(),
            at_us: 17,
            seed: 9,
        };
        let told = failed(&scenario, &broken.into());
        assert_eq!(told.exit, Exit::FAILED);
        for words in ["P1 broken", "six calls", "fault of Paceline", "please report it"] {
            assert!(told.words.contains(words), "{}", told.words);
        }
        // The command is one: it parses to the same scenario.
        let (_, command) = told.words.split_once("command: ").unwrap();
        let words = command.split('\'').enumerate().flat_map(|(index, part)| {
            if index % 2 == 1 { vec![part] } else { part.split_whitespace().collect() }
        });
        Cli::try_parse_from(words).unwrap();
        let last = "--seconds 60 --jitter 10ms --delay 200us --answer 0s --demand 'saturated' \
                    --store host --seed 9";
        assert!(command.ends_with(last), "{command}");
    }

    #[test]
    fn a_stores_kind_is_told_by_its_scheme_and_memory_has_none() {
        for (store, kind) in [
            ("redis", StoreKind::Redis),
            ("redis://localhost/3", StoreKind::Redis),
            ("rediss://user:hush@host", StoreKind::Redis),
            ("host", StoreKind::Host),
            ("host:/var/lib/x", StoreKind::Host),
            ("", StoreKind::Host),
        ] {
            assert_eq!(store_kind(store).unwrap(), kind, "{store}");
        }
        assert!(store_kind("memory:").unwrap_err().words.contains("memory:"));
        let refused = store_kind("postgres://user:hush@host").unwrap_err().words;
        assert!(refused.contains("\"postgres\"") && !refused.contains("hush"), "{refused}");
    }
}
