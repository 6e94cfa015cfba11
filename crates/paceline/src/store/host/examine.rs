//! What there is to say of a host folder: where it is and on what, whether it can be written, what
//! is in it, how many decisions a second it makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paceline_core::{Ask, Policy};

use super::super::local;
use super::Host;
use crate::error::Error;
use crate::examination::{Examination, PROBE_POLICY, Sheet, per_second, probe_name};

/// For how long decisions are measured.
const RATE_FOR: Duration = Duration::from_millis(300);
/// Decisions between two chances for other tasks.
const AT_A_TIME: u64 = 64;

impl Host {
    /// Looks at the folder.
    pub(crate) async fn examine(&self, found: &mut Examination) {
        let mut sheet = Sheet::default();
        sheet.fact("folder", self.folder.path().display().to_string());
        sheet.fact("shared by", "all processes of this user on this machine");
        judge_file_system(self.folder.file_system(), &mut sheet);
        match self.folder.marker() {
            Ok(_) => sheet.fact("writable", "yes"),
            Err(error) => sheet.failed(&error),
        }
        match self.list() {
            Ok(names) => sheet.fact("buckets", names.len().to_string()),
            Err(error) => sheet.failed(&error),
        }
        if !sheet.is_wrong() {
            match self.measured().await {
                Ok(rate) => sheet.fact("decisions", rate),
                Err(error) => sheet.failed(&error),
            }
        }
        found.take_in(sheet);
    }

    /// Real decisions on a bucket of its own, one after the other.
    async fn measured(&self) -> Result<String, Error> {
        let (bucket, policy) = (probe_name(), Arc::new(PROBE_POLICY.parse::<Policy>()?));
        let start = Instant::now();
        let mut count = 0;
        let result = loop {
            let taken =
                local::take(self, &bucket, &policy, Ask { cost: 1.into(), wait_max_us: 0 }).await;
            if let Err(error) = taken {
                break Err(error);
            }
            count += 1;
            if start.elapsed() >= RATE_FOR {
                break Ok(());
            }
            if count % AT_A_TIME == 0 {
                tokio::task::yield_now().await;
            }
        };
        let rate = per_second(count, start.elapsed());
        // What cannot be removed evaporates.
        let _ = local::delete(self, &bucket).await;
        result.map(|()| rate)
    }
}

fn judge_file_system(file_system: Option<(String, bool)>, sheet: &mut Sheet) {
    let Some((kind, is_network)) = file_system else { return };
    if is_network {
        sheet.risk(
            format!(
                "the folder is on a network file system ({kind}), where locks are slow or missing, \
                 and machines that share it have clocks of their own"
            ),
            "choose a local folder with host:/path, or redis:// to share buckets between machines",
        );
    }
    sheet.fact("file system", kind);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examination::Severity;

    #[test]
    fn a_folder_that_machines_share_is_a_risk() {
        for (kind, is_network) in [("ext4", false), ("nfs4", true)] {
            let mut sheet = Sheet::default();
            judge_file_system(Some((kind.to_owned(), is_network)), &mut sheet);
            assert_eq!(sheet.facts()[0].is, kind);
            let risks = sheet.findings().iter().filter(|it| it.severity == Severity::Risk);
            assert_eq!(risks.count(), usize::from(is_network));
        }
    }
}
