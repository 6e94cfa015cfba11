//! A short schedule of faults against real servers: one run of each kind.

use std::process::Command;

#[test]
fn what_breaks_heals_and_no_window_goes_over_its_bound() {
    let chaos = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--seeds", "3", "--from", "1000", "--at-once", "3"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&chaos.stdout);
    assert!(chaos.status.success(), "{told}\n{}", String::from_utf8_lossy(&chaos.stderr));
    assert!(told.contains("3 runs, 0 broken, 0 void"), "{told}");
}
