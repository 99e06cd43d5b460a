//! The command as a process: a file for each promise.

mod bench;
mod cli;
mod deployed;
mod doctor;
mod fences;
mod force;
mod holders;
mod list;
mod lock;
mod look;
mod prefix;
mod promoted;
mod pty;
mod replacing;
mod run;
mod runbook;
mod servers;
mod several;
#[cfg(feature = "tls")]
mod tls;
mod usage;
mod waiting;
mod watch;
