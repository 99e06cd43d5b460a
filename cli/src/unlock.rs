//! `redbolt unlock`: releases a lock by its key and token.

use redbolt::driver::Outcome;
use redbolt::{UnlockError, Unlocked};
use serde_json::json;

use crate::args::{Global, UnlockArgs};
use crate::exit::{Failure, LOST, NO_QUORUM};
use crate::output::{say, shown};
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};
use crate::token;

pub(crate) fn run(global: &Global, args: &UnlockArgs) -> Result<(), Failure> {
    let token = token::read(&args.token)?;
    let mut session = Session::open(global, &[])?;
    session.wait_settled(CONNECT_LIMIT)?;
    let op = session.driver.unlock_token(&args.key.0, &token)?;
    let outcome = session.finish(op)?;
    // The answers to a delete name no cause, and those to a question do.
    let is_unknown = matches!(outcome, Outcome::Unlock(Ok(Unlocked::Unknown)));
    let seen = if is_unknown { session.look_at(&args.key.0) } else { None };
    session.close();
    let Outcome::Unlock(result) = outcome else { return Err(odd_outcome()) };
    let key = shown(&args.key.0);
    match result {
        Ok(Unlocked::Released) if global.json => Ok(say(json!({"key": key, "released": true}))?),
        Ok(Unlocked::Released) => Ok(say(format_args!("{key} is released"))?),
        Err(UnlockError::NotHeld) => Err(Failure::new(
            LOST,
            "not_held",
            format!("{key} is not held with this token: it is over, or was released before"),
        )),
        Ok(_) => Err(match seen {
            Some(seen) => too_few(&key).unseen(&seen.nodes, session.driver.quorum()),
            None => too_few(&key).away(&session.driver.nodes(), session.driver.quorum()),
        }),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn too_few(key: &str) -> Failure {
    let message =
        format!("too few nodes answered to know whether {key} is released; it ends with its TTL");
    Failure::new(NO_QUORUM, "unknown", message)
}
