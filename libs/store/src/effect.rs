//! The last step of an effect that left Postgres. Its command stands as started until then, whoever dies.

use crate::database::Database;
use crate::error::{Fault, FlightError};
use crate::first_flight::OPEN;
use crate::flight::{Flight, Step};
use crate::in_flight::{Committed, commit};
use crate::lease::BEGIN;
use crate::mutation::{Command, Conclusion, Outcome};
use crate::parameter::value;
use crate::table::{claim, command, effect, quota};
use crate::write;

impl Database {
    /// Commits the outcome of a command that was started, in one flight. A refusal says that the effect did not happen
    /// and frees the claim.
    ///
    /// # Errors
    /// [`FlightError::Guard`] if the command does not stand as started; see [`FlightError`] for the rest.
    pub async fn finish_effect(&self, command: &Command, conclusion: Conclusion) -> Result<Committed, FlightError> {
        let mut flight = Flight::default();
        flight.add(Step::plain(BEGIN));
        flight.add(Step::new(OPEN, [value(command.traceparent.clone())]));
        let claim = command.claim.as_ref();
        let outcome = match conclusion {
            Conclusion::Effect { writes, outcome, receipt } => {
                flight.add(command::finish(command.id, &outcome));
                if let Some(claim) = claim {
                    flight.add(claim::complete(command, claim, &receipt));
                }
                write::add_all(&mut flight, writes);
                outcome
            }
            Conclusion::Refusal(status) => {
                let outcome = Outcome::Refused(status);
                flight.add(command::finish(command.id, &outcome));
                if let Some(claim) = claim {
                    flight.add(claim::free(command, claim));
                    flight.add(quota::take(&command.caller, 1));
                }
                outcome
            }
            Conclusion::Replay(_) => return Err(Fault("a started effect cannot end in a replay").into()),
        };
        flight.add(effect::end(command.id));
        let outbox = commit(self.lease().await?, flight).await?;
        Ok(Committed { outcome, outbox })
    }
}
