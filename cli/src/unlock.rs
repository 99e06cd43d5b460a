//! `redbolt unlock`: releases a lock by its key and token.

use redbolt::driver::Outcome;
use redbolt::inspect::NodeHealth;
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
        Ok(_) => Err(too_few(&session.driver.nodes(), session.driver.quorum(), &key)),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn too_few(nodes: &[NodeHealth], quorum: u32, key: &str) -> Failure {
    let message =
        format!("too few nodes answered to know whether {key} is released; it ends with its TTL");
    Failure::new(NO_QUORUM, "unknown", message).away(nodes, quorum)
}
