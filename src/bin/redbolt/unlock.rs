//! `redbolt unlock`: releases a lock by its key and token.

use redbolt::Unlocked;
use redbolt::driver::Outcome;
use serde_json::json;

use crate::args::{Global, UnlockArgs};
use crate::exit::{Failure, LOST, NO_QUORUM};
use crate::output::{say, shown};
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};

pub(crate) fn run(global: &Global, args: &UnlockArgs) -> Result<(), Failure> {
    let mut session = Session::open(global, &[])?;
    session.wait_settled(CONNECT_LIMIT)?;
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
    let message =
        format!("too few nodes answered to know whether {key} is released; it ends with its TTL");
    Failure::new(NO_QUORUM, "unknown", message).away(&session.driver.nodes())
}
