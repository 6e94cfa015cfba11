//! What a recorder of the `metrics` facade sees.

use std::collections::HashMap;
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use paceline::Limiter;

/// What was counted, by name and labels; of histograms how often.
fn counted(snapshotter: &Snapshotter) -> HashMap<String, u64> {
    let snapshot = snapshotter.snapshot().into_vec().into_iter();
    snapshot
        .map(|(key, _, _, value)| {
            let labels: Vec<_> =
                key.key().labels().map(|it| format!("{}={}", it.key(), it.value())).collect();
            let value = match value {
                DebugValue::Counter(count) => count,
                DebugValue::Gauge(value) => value.into_inner() as u64,
                DebugValue::Histogram(values) => values.len() as u64,
            };
            (format!("{} {}", key.key().name(), labels.join(" ")), value)
        })
        .collect()
}

#[test]
fn permits_refusals_waits_and_the_store_are_measured() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let folder = paceline_testkit::scratch_dir("meters");
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = format!("host:{}", folder.path().display());
            let limiter = Limiter::open(&url).await.unwrap();
            let bucket = limiter.bucket("api", "1/h burst 2").unwrap();
            for _ in 0..2 {
                bucket.acquire().await.unwrap().spend();
            }
            assert!(!bucket.try_acquire().await.unwrap().is_granted());
            bucket.cost(3).try_acquire().await.unwrap_err();
            bucket.suspend(Duration::from_secs(60), "429").await.unwrap();
            assert!(!bucket.acquire_within(Duration::from_secs(1)).await.unwrap().is_granted());
        });
    });
    let counted = counted(&snapshotter);
    for (name, value) in [
        ("paceline_permits_total bucket=api by=store", 2),
        ("paceline_refusals_total bucket=api cause=quota", 1),
        ("paceline_refusals_total bucket=api cause=suspended", 1),
        ("paceline_refusals_total bucket=api cause=never", 1),
        ("paceline_wait_seconds bucket=api", 2),
        ("paceline_waiters bucket=api", 0),
        ("paceline_store_seconds store=host", 5),
        ("paceline_store_errors_total store=host kind=unavailable", 0),
    ] {
        assert_eq!(counted.get(name), Some(&value), "{name}: {counted:#?}");
    }
}
