//! `redbolt extend`: gives held locks a new TTL, and fails if one of them is no longer held.

use redbolt::driver::Outcome;

use crate::args::{ExtendArgs, Global};
use crate::exit::Failure;
use crate::lock::announce;
use crate::output::note;
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};
use crate::token;

pub(crate) fn run(global: &Global, args: &ExtendArgs) -> Result<(), Failure> {
    let locks = token::locks(&args.keys, &args.token)?;
    let mut session = Session::open(global, &[])?;
    session.wait_settled(CONNECT_LIMIT)?;
    let op = session.driver.adopt_all(&locks, args.ttl)?;
    let Outcome::Adopt(result) = session.finish(op)? else { return Err(odd_outcome()) };
    let lease = result.map_err(|error| {
        let names: Vec<&[u8]> = locks.iter().map(|(key, _)| *key).collect();
        let failure = Failure::from(error);
        if let [_] = *names {
            return failure;
        }
        failure.of(&[&b"one of "[..], &names.join(&b", "[..])].concat())
    })?;
    let result =
        session.gather_votes(&lease).and_then(|()| announce(&session, &lease, global.json));
    if let Err(error) = session.driver.detach(&lease) {
        note(format_args!(
            "{error}. Until these nodes answer, do not extend by a longer TTL: the earlier extension \
             may undo it"
        ));
    }
    // The lock was held before and stays held: a lease that outlives its driver releases nothing.
    session.close();
    result
}
