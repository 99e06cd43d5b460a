//! [`Call`]: one command under way, for the function that runs it.

use super::reply::Reply;
use super::server::Server;
use super::session::Session;
use crate::request::Args;

/// One command under way: everything that it needs to run and to answer.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) session: &'a mut Session,
    pub(crate) args: Args<'a>,
    pub(crate) out: &'a mut Vec<u8>,
    /// Pushes to this session, which follow the answer.
    pub(crate) pushes: &'a mut Vec<u8>,
    /// The server's wall clock.
    pub(crate) now_ms: i64,
}

impl Call<'_> {
    /// The place of the answer, in the protocol that the session speaks now.
    pub(crate) fn reply(&mut self) -> Reply<'_> {
        Reply::new(self.out, self.session.resp3)
    }
}
