//! The commands: a file each, alike: its arguments, and `run` to an exit code.

mod acquire;
mod completions;
mod delete;
mod demo;
mod doctor;
mod exec;
mod list;
mod observe;
mod pace;
mod profiles;
mod replay;
mod resume;
mod set;
mod simulate;
mod status;
mod suspend;

use clap::Subcommand;

use crate::exit::{Exit, Failure};
use crate::run::Context;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Exec(exec::Exec),
    Pace(pace::Pace),
    Acquire(acquire::Acquire),
    Status(status::Status),
    List(list::List),
    Set(set::Set),
    Suspend(suspend::Suspend),
    Observe(observe::Observe),
    Resume(resume::Resume),
    Delete(delete::Delete),
    Doctor(doctor::Doctor),
    Profiles(profiles::Profiles),
    Replay(replay::Replay),
    Simulate(simulate::Simulate),
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorker),
    Completions(completions::Completions),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Exec(exec) => exec.run(context).await,
            Self::Pace(pace) => pace.run(context).await,
            Self::Acquire(acquire) => acquire.run(context).await,
            Self::Status(status) => status.run(context).await,
            Self::List(list) => list.run(context).await,
            Self::Set(set) => set.run(context).await,
            Self::Suspend(suspend) => suspend.run(context).await,
            Self::Observe(observe) => observe.run(context).await,
            Self::Resume(resume) => resume.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
            Self::Doctor(doctor) => doctor.run(context).await,
            Self::Profiles(profiles) => profiles.run(context),
            Self::Replay(replay) => replay.run(context).await,
            Self::Simulate(simulate) => simulate.run(context),
            Self::Demo(demo) => demo.run(context).await,
            Self::DemoWorker(worker) => worker.run(context).await,
            Self::Completions(completions) => completions.run(),
        }
    }
}
