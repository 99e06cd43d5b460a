//! `redbolt extend`: gives a lock that is held a new TTL.

use redbolt::driver::Outcome;

use crate::args::{ExtendArgs, Global};
use crate::exit::Failure;
use crate::lock::announce;
use crate::session::{CONNECT_LIMIT, Session, odd_outcome};
use crate::token;

pub(crate) fn run(global: &Global, args: &ExtendArgs) -> Result<(), Failure> {
    let token = token::read(&args.token)?;
    let mut session = Session::open(global, &[])?;
    session.wait_settled(CONNECT_LIMIT)?;
    let op = session.driver.adopt(&args.key.0, &token, args.ttl)?;
    let Outcome::Adopt(result) = session.finish(op)? else { return Err(odd_outcome()) };
    let result = result.map_err(Failure::from).and_then(|lease| {
        session.gather_votes(&lease)?;
        let said = announce(&session, &lease, global.json);
        // The lock was held before and stays held, even if the output has no reader.
        let _ = lease.detach();
        said
    });
    session.close();
    result
}
