//! The rules that locks rest on, each a function that can be broken on purpose: the simulation, or
//! a test named for the rule, must notice every breakage.
//!
//! Layer: bottom. Without feature `sim` no breakage is compiled.

/// Makes a function of each rule, a [`Mutant`] of each breakage, and a list of the mutants. Behind
/// each rule stand the name of its breakage, the violation that must show it, and the body that
/// replaces the rule's.
macro_rules! rules {
    ($list:ident: $(
        $(#[$rule:meta])*
        fn $name:ident $(<$type:ident $(: $bound:path)?>)?
            ($($argument:ident: $of:ty),*) $(-> $result:ty)? $holds:block
        $(#[$breakage:meta])*
        $mutant:ident => $kind:ident $broken:block
    )*) => {
        $(
            $(#[$rule])*
            #[inline(always)]
            pub(crate) fn $name $(<$type $(: $bound)?>)? ($($argument: $of),*) $(-> $result)? {
                #[cfg(feature = "sim")]
                if chosen::is(Mutant::$mutant) {
                    return $broken;
                }
                // A breakage may use arguments that its rule does not.
                $(let _ = &$argument;)*
                $holds
            }
        )*

        #[cfg(feature = "sim")]
        #[expect(non_upper_case_globals, reason = "each is named as a variant would be")]
        impl Mutant {
            $(
                $(#[$breakage])*
                pub const $mutant: Self =
                    Self { name: stringify!($mutant), kind: Kind::$kind };
            )*
        }

        #[cfg(feature = "sim")]
        pub(super) const $list: &[Mutant] = &[$(Mutant::$mutant),*];
    };
}

mod client;
#[cfg(feature = "sim")]
mod kind;
mod leases;
mod nodes;
mod sets;
mod transfers;
mod votes;
mod waiting;

#[cfg(feature = "sim")]
use std::fmt;

pub(crate) use client::*;
#[cfg(feature = "sim")]
pub use kind::Kind;
pub(crate) use {leases::*, nodes::*, sets::*, transfers::*, votes::*, waiting::*};

/// A breakage of one rule.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mutant {
    name: &'static str,
    kind: Kind,
}

#[cfg(feature = "sim")]
impl Mutant {
    /// All mutants.
    pub fn all() -> impl Iterator<Item = Self> {
        let topics = [VOTES, NODES, LEASES, SETS, TRANSFERS, WAITING, CLIENT];
        topics.into_iter().flatten().copied()
    }

    /// The violation that the mutant must lead to: another kind does not convict it.
    #[must_use]
    pub const fn kind(self) -> Kind {
        self.kind
    }
}

#[cfg(feature = "sim")]
impl fmt::Debug for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(feature = "sim")]
pub(crate) use chosen::run_with;

#[cfg(feature = "sim")]
mod chosen {
    //! The breakage that is on, for each thread: seeds run on several threads.

    use std::cell::Cell;

    use super::Mutant;

    thread_local! {
        static CHOSEN: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Whether `mutant` is on.
    #[inline]
    pub(super) fn is(mutant: Mutant) -> bool {
        CHOSEN.get() == Some(mutant)
    }

    /// Runs `body` with `mutant` on, and turns it off afterwards, even after a panic.
    pub(crate) fn run_with<R>(mutant: Option<Mutant>, body: impl FnOnce() -> R) -> R {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                CHOSEN.set(None);
            }
        }
        let _off = Off;
        CHOSEN.set(mutant);
        body()
    }
}
