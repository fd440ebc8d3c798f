//! What becomes of an update, however it came.

use roadstead_proto::api::v1::ConfigUpdate;

use crate::apply::StoreError;
use crate::behaviour::Decision;
use crate::client::{Client, Status};
use crate::observed::{ConfigSeen, EnvironmentSeen, Frame, Observation};
use crate::verdict::{Ending, Plan};

impl Client {
    /// Puts an update into effect, or does with it what a script says. None: so that nothing is said of it.
    pub(crate) async fn take(&mut self, frame: Frame, update: &ConfigUpdate) -> Option<Ending> {
        self.tell(Observation::Received(Box::new(frame.clone())));
        let decision = self.behaviour.borrow().decide(&frame);
        match decision {
            Decision::Silent => None,
            Decision::Answer(answer) => Some(Ending::Scripted(answer)),
            Decision::Apply => Some(self.apply(update).await),
        }
    }

    async fn apply(&mut self, update: &ConfigUpdate) -> Ending {
        let plan = match self.applied.plan(update) {
            Ok(plan) => plan,
            Err(ending) => return ending,
        };
        if let Err(error) = self.write(update, plan).await {
            tracing::error!(%error, "an update could not be applied");
            return Ending::Failed { message: error.to_string(), has_config: self.applied.has_config() };
        }
        self.status.send_if_modified(|status| show(status, update, plan));
        self.applied.done(plan, update)
    }

    async fn write(&self, update: &ConfigUpdate, plan: Plan) -> Result<(), StoreError> {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let (config, environment) = (update.sandbox_config.clone(), update.provider_environment.clone());
        let written = tokio::task::spawn_blocking(move || match plan {
            Plan::Retain => Ok(()),
            Plan::Close => store.close(),
            Plan::Install => {
                environment.map_or(Ok(()), |environment| store.install_environment(&environment))?;
                config.map_or(Ok(()), |config| store.install_config(&config))
            }
        });
        written.await.unwrap_or(Err(StoreError::Unwritable))
    }
}

/// Shows what is in effect now; whether it is something else than before.
fn show(status: &mut Status, update: &ConfigUpdate, plan: Plan) -> bool {
    match plan {
        Plan::Install => {
            if let Some(config) = &update.sandbox_config {
                status.config = Some(ConfigSeen::of(config));
            }
            if let Some(environment) = &update.provider_environment {
                status.environment = Some(EnvironmentSeen::of(environment));
            }
        }
        Plan::Close => status.config = None,
        Plan::Retain => return false,
    }
    true
}
