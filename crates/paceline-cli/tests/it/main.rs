//! The command line as its users see it: the real binary, its output and its exit codes.

#![allow(clippy::unwrap_used, reason = "in a test, helpers included, a panic is the report")]

mod acquire;
mod demo;
mod doctor;
mod exec;
mod input;
mod observe;
mod operate;
mod pace;
mod profiles;
mod program;
mod replay;
mod simulate;
