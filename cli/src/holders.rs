//! Who holds a lock, for people.

use redbolt::inspect::{ClientId, Holder};

use crate::output::short;

/// `till on web-7, process 4711, from 10.0.0.9:50412`, or as much of it as is known.
pub(crate) fn words(holder: &Holder) -> String {
    let Some(client) = holder.client else {
        return "a client of another library".to_owned();
    };
    let Holder { program, host, pid, address, .. } = holder;
    named(client, program.as_deref(), host.as_deref(), *pid, address.as_deref())
}

/// The same of any client.
pub(crate) fn named(
    client: ClientId,
    program: Option<&str>,
    host: Option<&str>,
    pid: Option<u32>,
    address: Option<&str>,
) -> String {
    let known: Vec<String> = [
        host.map(|host| format!("on {host}")),
        pid.map(|pid| format!("process {pid}")),
        address.map(|address| format!("from {address}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    match (program, known.is_empty()) {
        (None, true) => format!("client {client}"),
        (program, _) => {
            let program = program.unwrap_or("a program");
            format!("{program} {} (client {client})", known.join(", "))
        }
    }
}

/// `, for 12.3 s now while 2 calls wait`, or as much of it as the holder has said.
pub(crate) fn since(holder: &Holder) -> String {
    let held = holder.held_for.map(|held| format!(", for {} now", short(held)));
    let waiting = match holder.waiters {
        None | Some(0) => String::new(),
        Some(1) => " while 1 call waits".to_owned(),
        Some(count) => format!(" while {count} calls wait"),
    };
    held.unwrap_or_default() + &waiting
}

/// What it means that a holder which a node lists has not said how long it holds the lock. Only for
/// one that was asked.
pub(crate) fn silence(holder: &Holder) -> &'static str {
    if holder.address.is_some() && holder.held_for.is_none() {
        "; the holder does not answer: it may hang or be stopped"
    } else {
        ""
    }
}

/// What a holder whose lock has just as many votes as it needs risks; `None` where it has more. `quorum`
/// is that of this command, and `count` how many nodes there are: where every vote is needed anyhow
/// this says nothing new.
pub(crate) fn no_spare(holder: &Holder, quorum: u32, count: usize) -> Option<&'static str> {
    let has_spare = holder.votes > quorum || u32::try_from(count).is_ok_and(|all| all <= quorum);
    (!has_spare).then_some(NO_SPARE)
}

const NO_SPARE: &str = "no vote to spare: one more node that fails or restarts ends it";

/// Why no more than its client is known of a holder; `None` where more is.
pub(crate) fn why_unknown(holder: &Holder) -> Option<&'static str> {
    let is_unknown = holder.client.is_some() && holder.address.is_none();
    is_unknown.then_some(
        "no node lists this client: it has ended or lost its connections, or the user may not run \
         CLIENT LIST; a script may have taken the lock with redbolt lock and extend it: look whether \
         the time until it ends grows",
    )
}
