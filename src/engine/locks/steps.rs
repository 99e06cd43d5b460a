//! The life of a token: its states for this client, its inputs, and the table of both.

/// The state of a token for its client. States that the code tests together are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TokenState {
    Free,
    /// Offered by a waiting call: a holder may hand its lock over to it.
    Offered,
    /// An attempt that has asked one node, and asks the others once that node grants.
    Gated,
    /// An attempt whose votes are out.
    Asking,
    /// A quorum granted, and the caller has not taken its lease.
    Won,
    /// A lease.
    Held,
    /// A failed attempt, whose keys are deleted or being deleted. Its call tries again, or ends.
    Between,
    /// No longer a lock: its keys are deleted or being deleted.
    Released,
    /// Another client may have the lock: this client writes no more commands that change its keys.
    GivenAway,
}

/// An event in the life of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum TokenInput {
    /// An attempt draws the token.
    Begin,
    /// A waiting call offers the token.
    Offer,
    /// A caller names the token, to adopt or to unlock the lock.
    Name,
    /// The attempt asks one node before the others.
    Gate,
    /// That node has granted.
    Open,
    /// A quorum has granted, or has handed the lock over.
    Win,
    /// The caller takes its lease.
    Take,
    /// The attempt gives no lease, and its call has no result yet.
    Fail,
    /// The call makes its next attempt, or ends.
    Leave,
    Release,
    GiveAway,
    /// No answer, debt, offer, operation or lease names the token any more.
    Forget,
}

impl TokenState {
    /// The table: for each input, the states in which it may come, and the next state. `None`: this
    /// cannot happen to the token. Inputs are constants, so each step is a comparison.
    #[inline(always)]
    pub(in crate::engine) const fn next(self, input: TokenInput) -> Option<Self> {
        use TokenInput as I;
        let (may_come, next) = match input {
            I::Begin => (matches!(self, Self::Free), Self::Asking),
            I::Offer => (matches!(self, Self::Free), Self::Offered),
            I::Name => (matches!(self, Self::Free), Self::Held),
            I::Gate => (matches!(self, Self::Asking), Self::Gated),
            I::Open => (matches!(self, Self::Gated), Self::Asking),
            I::Win => (matches!(self, Self::Asking | Self::Offered), Self::Won),
            I::Take => (matches!(self, Self::Won), Self::Held),
            I::Fail => (self.is_attempt() || matches!(self, Self::Won), Self::Between),
            I::Leave => (matches!(self, Self::Between), Self::Released),
            I::Release => (self.is_alive(), Self::Released),
            I::GiveAway => (matches!(self, Self::Held), Self::GivenAway),
            I::Forget => (matches!(self, Self::Released | Self::GivenAway), Self::Free),
        };
        if may_come { Some(next) } else { None }
    }

    /// Whether the token is an attempt that is not decided.
    pub(in crate::engine) const fn is_attempt(self) -> bool {
        matches!(self, Self::Gated | Self::Asking)
    }

    /// Whether the token is a lock of this client, or may become one by an attempt.
    pub(in crate::engine) const fn is_lock(self) -> bool {
        matches!(self, Self::Gated | Self::Asking | Self::Won | Self::Held)
    }

    /// Whether its keys may be on nodes, and no delete is written or owed yet.
    pub(in crate::engine) const fn is_alive(self) -> bool {
        self.is_lock() || matches!(self, Self::Offered)
    }

    /// Whether the client has the lock, may get it, or is releasing it.
    pub(in crate::engine) const fn is_in_hand(self) -> bool {
        !matches!(self, Self::Free | Self::GivenAway)
    }

    /// Whether its keys are deleted, or being deleted.
    pub(in crate::engine) const fn is_deleted(self) -> bool {
        matches!(self, Self::Between | Self::Released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_over_never_comes_back_before_it_is_forgotten() {
        let all = [
            TokenInput::Begin,
            TokenInput::Offer,
            TokenInput::Name,
            TokenInput::Gate,
            TokenInput::Open,
            TokenInput::Win,
            TokenInput::Take,
            TokenInput::Fail,
            TokenInput::Leave,
            TokenInput::Release,
            TokenInput::GiveAway,
            TokenInput::Forget,
        ];
        for over in [TokenState::Between, TokenState::Released, TokenState::GivenAway] {
            let next: Vec<_> = all.iter().filter_map(|&input| over.next(input)).collect();
            let expected =
                if over == TokenState::Between { TokenState::Released } else { TokenState::Free };
            assert_eq!(next, [expected], "{over:?}");
        }
    }
}
