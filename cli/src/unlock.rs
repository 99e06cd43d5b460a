//! `redbolt unlock`: releases locks by their keys and their token.

use redbolt::{Client, UnlockError, Unlocked, wait_all};
use serde_json::json;

use crate::args::{Global, UnlockArgs};
use crate::exit::{Failure, LOST, NO_QUORUM};
use crate::output::{say, shown};
use crate::session::node_timeout;
use crate::token::Named;
use crate::{inspect, look, settings, token};

pub(crate) fn run(global: &Global, args: &UnlockArgs) -> Result<(), Failure> {
    let locks = token::locks(&args.keys, &args.token)?;
    // A node that connects late gets the deletes, too.
    let client = look::opened(settings::config(global)?)?;
    let calls = locks.iter().map(|(key, token)| client.unlock_token(key, token));
    let results = locks.iter().zip(wait_all(calls));
    let reports = results.map(|(lock, result)| report(&client, lock, result, global.json));
    let ended = Failure::of_each(reports, global.json);
    client.shutdown(node_timeout(global)).wait();
    ended
}

fn report(
    client: &Client,
    (name, token): &Named<'_>,
    result: Result<Unlocked, UnlockError>,
    json: bool,
) -> Result<(), Failure> {
    let key = shown(name);
    match result {
        Ok(Unlocked::Released) if json => Ok(say(json!({"key": key, "released": true}))?),
        Ok(Unlocked::Released) => Ok(say(format_args!("{key} is released"))?),
        Err(UnlockError::NotHeld) => {
            let message = format!(
                "{key} is not held with this token: the lock is over, or was released \
                    before"
            );
            let failure = Failure::new(LOST, "not_held", message);
            let is_of_set = token.contains(&b',');
            Err(if is_of_set {
                failure.hint("if it is the token of several locks, name all of them")
            } else {
                failure
            })
        }
        // The answers to a delete name no cause, so the command also asks for the holder.
        Ok(_) => Err(match inspect::leader(client, name) {
            Ok(seen) => too_few(&key).unseen(&seen.nodes, client.quorum()),
            Err(_) => too_few(&key).away(&client.nodes().wait(), client.quorum()),
        }),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn too_few(key: &str) -> Failure {
    let message =
        format!("too few nodes answered to know whether {key} is released; it ends with its TTL");
    Failure::new(NO_QUORUM, "unknown", message)
}
