//! [`redbolt_error`]: the code, the message and the votes, in the caller's own memory.

use std::fmt::{self, Write as _};
use std::mem::offset_of;

use redbolt::{Ballot, Vote};

use crate::code::redbolt_code;
use crate::failure::Failure;

/// The most nodes that a client can have.
pub const REDBOLT_NODES_MAX: usize = 32;

/// The bytes of a message, with the zero at its end. A longer message is cut.
pub const REDBOLT_MESSAGE_MAX: usize = 1024;

/// What one node said, in `votes` of `redbolt_error`.
#[repr(u8)]
#[derive(Clone, Copy, Debug)]
pub enum redbolt_vote {
    /// The client has no such node.
    REDBOLT_VOTE_NONE = 0,
    /// The node wrote the key.
    REDBOLT_VOTE_GRANTED = 1,
    /// The node holds the key for another client, or for another caller of this client.
    REDBOLT_VOTE_DENIED = 2,
    /// The node wrote nothing, or the client did not ask it; the message says why.
    REDBOLT_VOTE_FAILED = 3,
    /// The key may have been written: no clear answer came in time.
    REDBOLT_VOTE_UNKNOWN = 4,
}

/// Why a call failed, in the caller's memory. Each call that takes an error writes it, even if the
/// call succeeds. Pass null if the code is enough: a message costs about a microsecond.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct redbolt_error {
    /// The code that the call returned.
    pub code: i32,
    /// How many nodes the client has, whether it asked them or not. Zero: the nodes had no part.
    pub nodes: u32,
    /// How many votes were needed.
    pub quorum: u32,
    /// A `redbolt_vote` per node, in the order of the configuration.
    pub votes: [u8; REDBOLT_NODES_MAX],
    /// One line of UTF-8 for a person, ended by a zero. It never has a token or a password.
    pub message: [u8; REDBOLT_MESSAGE_MAX],
}

/// The first bytes of a `redbolt_error` whose call succeeded: all zeros.
#[repr(C)]
#[derive(Default)]
struct Success {
    code: i32,
    nodes: u32,
    quorum: u32,
    votes: [u8; REDBOLT_NODES_MAX],
    message: [u8; 4],
}
const _: () = {
    assert!(offset_of!(Success, message) == offset_of!(redbolt_error, message));
    assert!(redbolt_code::REDBOLT_OK as i32 == 0 && redbolt_vote::REDBOLT_VOTE_NONE as u8 == 0);
};

impl redbolt_error {
    /// Writes how a call ended. After a success it writes only the first bytes, with an empty message.
    /// Writing all would cost more than the border's other work.
    ///
    /// # Safety
    ///
    /// `place` points to memory for a `redbolt_error` that nothing else uses meanwhile.
    pub(crate) unsafe fn tell(place: *mut Self, outcome: Result<(), &Failure>) {
        if let Err(failure) = outcome {
            // SAFETY: by this function's contract.
            return unsafe { place.write(Self::of(failure)) };
        }
        // SAFETY: by this function's contract; a success is the first bytes of an error.
        unsafe { place.cast::<Success>().write(Success::default()) };
    }

    pub(crate) fn of(failure: &Failure) -> Self {
        let mut error = Self {
            code: failure.code() as i32,
            nodes: 0,
            quorum: 0,
            votes: [redbolt_vote::REDBOLT_VOTE_NONE as u8; REDBOLT_NODES_MAX],
            message: [0; REDBOLT_MESSAGE_MAX],
        };
        if let Some(ballot) = failure.ballot() {
            error.count(ballot);
        }
        // The last byte stays zero. A message that does not fit is cut, which is no error.
        let [room @ .., _] = &mut error.message;
        let _ = write!(Line { room, len: 0 }, "{failure}");
        error
    }

    fn count(&mut self, ballot: &Ballot) {
        self.quorum = ballot.quorum();
        for ((_, vote), place) in ballot.votes().zip(&mut self.votes) {
            self.nodes += 1;
            *place = match vote {
                Vote::Granted => redbolt_vote::REDBOLT_VOTE_GRANTED,
                Vote::Denied => redbolt_vote::REDBOLT_VOTE_DENIED,
                Vote::Failed(_) => redbolt_vote::REDBOLT_VOTE_FAILED,
                Vote::Unknown(_) | _ => redbolt_vote::REDBOLT_VOTE_UNKNOWN,
            } as u8;
        }
    }
}

/// Writes text into bytes, up to the last character that fits whole.
struct Line<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = self.room.get_mut(self.len..).unwrap_or_default();
        let most = left.len().min(text.len());
        let fits = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        for (place, byte) in left.iter_mut().zip(text.bytes().take(fits)) {
            *place = byte;
        }
        self.len += fits;
        if fits < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_takes_the_place_of_an_earlier_failure() {
        let mut place = redbolt_error::of(&Failure::Panic);
        place.nodes = 5;
        place.votes = [redbolt_vote::REDBOLT_VOTE_DENIED as u8; REDBOLT_NODES_MAX];
        // SAFETY: the error lives for the call.
        unsafe { redbolt_error::tell(&raw mut place, Ok(())) };
        assert_eq!((place.code, place.nodes, place.quorum), (0, 0, 0));
        assert_eq!((place.votes, place.message[0]), ([0; REDBOLT_NODES_MAX], 0));
    }

    #[test]
    fn a_message_that_is_too_long_ends_before_the_character_that_does_not_fit() {
        let mut room = [0; 4];
        let mut line = Line { room: &mut room, len: 0 };
        assert!(line.write_str("aé").is_ok());
        assert!(line.write_str("ß!").is_err());
        assert_eq!(&room, "aé\0".as_bytes());
    }
}
