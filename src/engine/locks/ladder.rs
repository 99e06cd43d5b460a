//! Releases and extensions in the forms that servers offer: the next form, if a node refuses one.

use super::core::Locks;
use crate::command::{Answer, Form};
use crate::error::Cause;
use crate::node::Now;
use crate::quorum::NodeId;

impl Locks {
    /// A node answered with an error. Returns the form that the client sends instead.
    pub(super) fn next_step<F: Form>(
        &mut self,
        id: NodeId,
        form: F,
        answer: Answer,
        now: Now,
    ) -> Option<F> {
        match answer {
            Answer::Refused(Cause::OutOfMemory) if form.without_memory().is_some() => {
                form.without_memory()
            }
            Answer::Refused(Cause::Unsupported | Cause::NoPermission) => {
                // The node refused this form, which spares its memory: next time it gets its usual
                // form.
                let usual = self.nodes.form::<F>(id);
                if usual.is_some_and(|usual| usual < form && usual.without_memory().is_some()) {
                    return None;
                }
                self.nodes.leave(id, form, now.real)
            }
            Answer::Refused(cause) => {
                self.nodes.note_refusal(id, cause, now.real);
                None
            }
            Answer::Ok
            | Answer::Null
            | Answer::Zero
            | Answer::One
            | Answer::Number
            | Answer::Odd => None,
        }
    }
}
