//! One side of the demo: a lock, the record that its holders write, and the steps of a turn.

use super::holder::{Holder, Role, Said, Who};
use super::picture::Side;
use super::record::Record;
use crate::exit::{Failure, SYSTEM};
use crate::output::Paint;

/// What one of them does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Start(Who),
    Lock(Who),
    Check(Who),
    Write(Who),
}

/// A turn: A writes last.
pub(super) const STEPS: [Step; 8] = [
    Step::Start(Who::A),
    Step::Lock(Who::A),
    Step::Check(Who::A),
    Step::Start(Who::B),
    Step::Lock(Who::B),
    Step::Check(Who::B),
    Step::Write(Who::B),
    Step::Write(Who::A),
];

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Lane {
    key: &'static str,
    is_fenced: bool,
    pub(super) record: Record,
    pub(super) side: Side,
    /// A and B, while they run.
    actors: [Option<Actor>; 2],
    /// How many holders the lock has had.
    holders: u32,
}

/// A holder, and what it has said.
#[derive(Debug)]
struct Actor {
    process: Holder,
    /// Its place in the order of the holders.
    number: u32,
    fence: Option<u64>,
}

impl Lane {
    pub(super) fn new(
        title: &'static str,
        key: &'static str,
        is_fenced: bool,
        paint: Paint,
    ) -> Self {
        Self {
            key,
            is_fenced,
            record: Record::new(is_fenced),
            side: Side::new(title, paint),
            actors: [None, None],
            holders: 0,
        }
    }

    /// Does one step. A holder that finds its lock over has no further ones.
    pub(super) fn go(&mut self, step: Step, nodes: Option<&str>) -> Result<(), Failure> {
        match step {
            Step::Start(who) => self.start(who, nodes),
            Step::Lock(who) => self.act(who, Self::lock),
            Step::Check(who) => self.act(who, Self::check),
            Step::Write(who) => self.act(who, Self::write),
        }
    }

    fn start(&mut self, who: Who, nodes: Option<&str>) -> Result<(), Failure> {
        let (key, is_fenced, is_stopped) = (self.key, self.is_fenced, who == Who::A);
        let process = Holder::start(Role { key, is_fenced, is_stopped }, nodes)?;
        self.holders += 1;
        *self.place(who) = Some(Actor { process, number: self.holders, fence: None });
        Ok(())
    }

    /// Takes a holder from its place, if it is still there; `step` says whether it stays.
    fn act(
        &mut self,
        who: Who,
        step: impl FnOnce(&mut Self, Who, &mut Actor) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let Some(mut actor) = self.place(who).take() else { return Ok(()) };
        if step(self, who, &mut actor)? {
            *self.place(who) = Some(actor);
            return Ok(());
        }
        actor.process.finish()
    }

    fn lock(&mut self, who: Who, actor: &mut Actor) -> Result<bool, Failure> {
        let said = actor.process.listen()?;
        let Said::Locked(fence) = said else { return Err(odd()) };
        actor.fence = fence;
        self.side.said(who, said);
        // The first act of a holder: the record hears of its fence before any other work.
        let touched = self.record.touch(fence);
        touched.map_err(|stale| Failure::new(SYSTEM, "system", stale.to_string()))?;
        Ok(true)
    }

    fn check(&mut self, who: Who, actor: &mut Actor) -> Result<bool, Failure> {
        let said = actor.process.listen()?;
        self.side.said(who, said);
        match said {
            Said::Left(_) if who == Who::A => {
                actor.process.wait_stopped()?;
                self.side.stopped();
                Ok(true)
            }
            Said::Left(_) => Ok(true),
            Said::Over => Ok(false),
            Said::Locked(_) | Said::Write => Err(odd()),
        }
    }

    fn write(&mut self, who: Who, actor: &mut Actor) -> Result<bool, Failure> {
        if who == Who::A {
            actor.process.go_on()?;
        }
        if actor.process.listen()? != Said::Write {
            return Err(odd());
        }
        let written = self.record.write(actor.number, actor.fence);
        self.side.wrote(who, written);
        Ok(false)
    }

    fn place(&mut self, who: Who) -> &mut Option<Actor> {
        let [a, b] = &mut self.actors;
        match who {
            Who::A => a,
            Who::B => b,
        }
    }
}

fn odd() -> Failure {
    Failure::new(SYSTEM, "system", "a holder of the demo did its steps in another order")
}
