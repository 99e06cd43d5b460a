//! The command as a process: one file for each promise.

mod agreement;
mod cli;
mod deployed;
mod doctor;
mod elect;
#[cfg(target_os = "linux")]
mod escapes;
mod exchange;
mod fences;
mod force;
mod holders;
mod interrupted;
mod json;
mod list;
mod lock;
mod logins;
mod look;
mod managed;
mod operating;
mod operator;
mod prefix;
mod prometheus;
mod promoted;
mod pty;
mod replacing;
mod run;
mod runbook;
mod servers;
mod sets;
mod settings;
mod several;
mod since;
mod slots;
#[cfg(feature = "tls")]
mod tls;
mod usage;
mod waiting;
mod watch;
