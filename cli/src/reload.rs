//! A command that goes on for long takes other nodes from its file of settings.
//!
//! It looks at the file, instead of waiting for a signal: HUP belongs to CMD, and to terminals.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use redbolt::driver::Driver;
use redbolt::{Instant, now};

use crate::args::Global;
use crate::output::note_between;
use crate::{settings, sources};

/// The time between two looks at the file.
const EVERY: Duration = Duration::from_secs(1);

/// The file that names the nodes.
pub(crate) struct Reload {
    global: Global,
    file: PathBuf,
    seen: Option<Stamp>,
    /// When the next look is due.
    pub(crate) due: Instant,
    /// Lists from the file are to come that do not decide yet.
    is_exchanging: bool,
}

/// A version of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: SystemTime,
    len: u64,
}

impl Stamp {
    /// `None` while there is no such file.
    fn of(file: &Path) -> Option<Self> {
        let found = fs::metadata(file).ok()?;
        Some(Self { modified: found.modified().ok()?, len: found.len() })
    }
}

impl Reload {
    /// `None` if an option or a variable names the nodes: then they stay.
    pub(crate) fn of(global: &Global) -> Option<Self> {
        let file = global.named_in.clone()?;
        let seen = Stamp::of(&file);
        Some(Self { global: global.clone(), file, seen, due: now() + EVERY, is_exchanging: false })
    }

    /// Looks at the file if that is due. Nodes that are wrong change nothing.
    pub(crate) fn look(&mut self, driver: &mut Driver) {
        let time = now();
        if time < self.due {
            return;
        }
        self.due = time + EVERY;
        self.look_at_file(driver);
        if self.is_exchanging && !driver.is_exchanging() {
            self.is_exchanging = false;
            let file = self.file.display();
            note_between(format!("from now on a lock needs a quorum of the nodes in {file}"));
        }
    }

    fn look_at_file(&mut self, driver: &mut Driver) {
        let stamp = Stamp::of(&self.file).filter(|stamp| Some(*stamp) != self.seen);
        let Some(stamp) = stamp else { return };
        self.seen = Some(stamp);
        let named = sources::renamed(&self.global, &self.file);
        let config = named.and_then(|global| settings::config(&global));
        let set = config.and_then(|config| Ok(driver.set_nodes(&config)?));
        let file = self.file.display();
        match set {
            Ok(()) => self.is_exchanging = true,
            Err(error) => {
                note_between(format!("{file} has changed, the nodes stay: {}", error.message))
            }
        }
    }
}
