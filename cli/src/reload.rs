//! A long-running command takes new nodes from its settings file.
//!
//! A thread looks at the file, because a file system may hang. No signal tells the thread to look:
//! HUP belongs to CMD, and to terminals.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use redbolt::driver::Driver;
use redbolt::{Config, ConfigError, Instant, now};

use crate::args::Global;
use crate::exit::{Failure, LOST};
use crate::output::note_between;
use crate::{settings, sources};

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// The nodes that the file names.
type Named = Result<Config, Failure>;

/// The file that names the nodes.
pub(crate) struct Reload {
    file: PathBuf,
    named: Receiver<Named>,
    /// When the next look at what the thread has found is due.
    pub(crate) due: Instant,
    /// The driver is still changing to the lists in the file.
    is_exchanging: bool,
}

/// When the file was written, and its length; `None` while there is no such file.
fn version(file: &Path) -> Option<(SystemTime, u64)> {
    let found = fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

impl Reload {
    /// `None` if an option or a variable names the nodes: then they stay.
    pub(crate) fn of(global: &Global) -> Result<Option<Self>, Failure> {
        let Some(file) = global.named_in.clone() else { return Ok(None) };
        let (sender, named) = channel();
        let (global, looked_at) = (global.clone(), file.clone());
        let thread = thread::Builder::new().name("settings".into());
        thread.spawn(move || watch(&global, &looked_at, &sender))?;
        Ok(Some(Self { file, named, due: now() + EVERY, is_exchanging: false }))
    }

    /// Takes the nodes of the file, if they have changed. Wrong nodes change nothing.
    ///
    /// # Errors
    ///
    /// The file shares no list with the lists in use: other clients may use its nodes already, and
    /// this command's locks do not exclude theirs.
    pub(crate) fn look(&mut self, driver: &mut Driver) -> Result<(), Failure> {
        let time = now();
        if time < self.due {
            return Ok(());
        }
        self.due = time + EVERY;
        let file = self.file.display();
        if let Some(named) = self.named.try_iter().last() {
            match named.and_then(|config| set(driver, &config, &file.to_string())) {
                Ok(()) => self.is_exchanging |= driver.is_exchanging(),
                Err(failure) if failure.code == LOST => return Err(failure),
                Err(failure) => {
                    note_between(format!(
                        "{file} has changed, the nodes stay: {}",
                        failure.message
                    ));
                }
            }
        }
        if self.is_exchanging && !driver.is_exchanging() {
            self.is_exchanging = false;
            note_between(format!("from now on a lock needs a quorum of the nodes in {file}"));
        }
        Ok(())
    }
}

fn set(driver: &mut Driver, config: &Config, file: &str) -> Result<(), Failure> {
    driver.set_nodes(config).map_err(|error| {
        if error != ConfigError::NoCommonList {
            return error.into();
        }
        let message = format!(
            "{file} shares no list of nodes with the settings in use: clients on its nodes could take \
             the locks of this command. Name the old nodes and the next ones first"
        );
        Failure::new(LOST, "lost", message)
    })
}

/// Sends the nodes that the file names, whenever the file has changed and then stayed as it is.
fn watch(global: &Global, file: &Path, sender: &Sender<Named>) {
    let (mut last, mut told) = (None, None);
    loop {
        let found = version(file);
        // A file that is being written may lack its end.
        if found.is_some() && found == last && found != told {
            let named = sources::renamed(global, file).and_then(|global| settings::config(&global));
            if version(file) == found {
                told = found;
                if sender.send(named).is_err() {
                    return;
                }
            }
        }
        last = found;
        thread::sleep(EVERY);
    }
}
