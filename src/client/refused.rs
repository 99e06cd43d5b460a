//! [`Refused`]: why a call of a client did not begin, in the words of each kind of call.

use std::io;

use crate::error::{ConnectError, DetachError, ExtendError, LockError, UnlockError};

/// Why a call did not begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    Full,
    Closed,
}

/// The errors that have both words for it.
macro_rules! refuses {
    ($($error:ty),*) => {$(
        impl From<Refused> for $error {
            fn from(refused: Refused) -> Self {
                match refused {
                    Refused::Full => Self::Full,
                    Refused::Closed => Self::Closed,
                }
            }
        }
    )*};
}

refuses!(LockError, ExtendError, DetachError, UnlockError);

impl From<Refused> for ConnectError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => io::Error::other(LockError::Full).into(),
            Refused::Closed => io::Error::other("the client is shut down").into(),
        }
    }
}
