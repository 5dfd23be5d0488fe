//! `COMMAND#`: a disruption command.

use tenon_domain::claim::RemovalReason;
use tenon_domain::command::{Command, CommandState};

use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use crate::key::REVISION;

impl ItemForm for Command {
    fn write(&self, to: &mut Attributes) {
        to.text("id", &self.id);
        to.number(REVISION, self.revision);
        to.text("pool", &self.pool);
        to.text("reason", self.reason.as_str());
        to.text_if("drifted_to", self.drifted_to.as_ref());
        to.texts("candidates", &self.candidates);
        to.texts("replacements", &self.replacements);
        to.time("created_at", self.created_at);
        to.text("phase", self.state.into_str());
        let (since, attempts, not_before, unplanned) = match &self.state {
            CommandState::Replacing { since, attempts, not_before, unplanned } => {
                (*since, Some(*attempts), Some(*not_before), Some(*unplanned).filter(|pods| *pods > 0))
            }
            CommandState::Draining { since } => (*since, None, None, None),
            CommandState::Done { at } => (*at, None, None, None),
        };
        to.time("phase_at", since);
        to.number_if("attempts", attempts);
        to.time_if("not_before", not_before);
        to.number_if("unplanned", unplanned);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let since = from.time("phase_at")?;
        let state = match from.text("phase")? {
            "Replacing" => CommandState::Replacing {
                since,
                attempts: from.u32("attempts")?,
                not_before: from.time("not_before")?,
                unplanned: from.u32_if("unplanned")?.unwrap_or(0),
            },
            "Draining" => CommandState::Draining { since },
            "Done" => CommandState::Done { at: since },
            other => {
                let expected = "expected `Replacing`, `Draining` or `Done`";
                let message = format!("`{other}` isn't a command's phase: {expected}");
                return Err(FieldError::at("phase", FieldProblem::Unknown(message)));
            }
        };
        Ok(Self {
            id: from.parsed("id")?,
            revision: from.u64(REVISION)?,
            pool: from.parsed("pool")?,
            reason: RemovalReason::of_any_release(from.text("reason")?),
            drifted_to: from.string_if("drifted_to")?,
            candidates: from.texts("candidates")?,
            replacements: from.texts("replacements")?,
            state,
            created_at: from.time("created_at")?,
        })
    }
}
