//! Paceline.

mod clock;
mod error;
mod name;
mod store;

pub use error::Error;
