//! `redbolt unlock`: releases a lock by its key and token.

use redbolt::driver::Outcome;
use redbolt::engine::NodeState;
use redbolt::{Cause, Unlocked};
use serde_json::json;

use crate::args::{Global, UnlockArgs};
use crate::exit::{Failure, LOST, NO_QUORUM};
use crate::output::{say, shown};
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};

pub(crate) fn run(global: &Global, args: &UnlockArgs) -> Result<(), Failure> {
    let mut session = Session::open(global, &[])?;
    session.settle(CONNECT_LIMIT)?;
    let op = session.driver.unlock_token(&args.key.0, &args.token.0)?;
    let outcome = session.finish(op)?;
    session.close();
    let Outcome::Unlock(unlocked) = outcome else { return Err(odd_outcome()) };
    let key = shown(&args.key.0);
    match unlocked {
        Unlocked::Released if global.json => Ok(say(json!({"key": key, "released": true}))?),
        Unlocked::Released => Ok(say(format_args!("{key} is released"))?),
        Unlocked::NotHeld => Err(Failure::new(
            LOST,
            "not_held",
            format!("{key} is not held with this token: it is over, or was released before"),
        )),
        Unlocked::Unknown | _ => Err(too_few(&session, &key)),
    }
}

fn too_few(session: &Session, key: &str) -> Failure {
    let nodes = session.driver.nodes();
    let away: Vec<String> = nodes
        .iter()
        .filter(|node| node.state != NodeState::Admitted)
        .map(|node| {
            let cause = if node.cause == Cause::None { Cause::Timeout } else { node.cause };
            format!("{}: {cause}", node.name)
        })
        .collect();
    let mut message =
        format!("too few nodes answered to know whether {key} is released; it ends with its TTL");
    if !away.is_empty() {
        message = format!("{message} ({})", away.join(", "));
    }
    Failure::new(NO_QUORUM, "unknown", message)
}
