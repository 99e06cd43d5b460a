//! The command as a process: a file for each promise.

mod bench;
mod cli;
mod deployed;
mod doctor;
mod fences;
mod handover;
mod lock;
mod logins;
mod look;
mod operating;
mod prefix;
mod prometheus;
mod promoted;
mod replacing;
mod run;
mod servers;
mod settings;
mod several;
#[cfg(feature = "tls")]
mod tls;
mod usage;
mod waiting;
mod watch;
