//! What becomes of an update, however it came.

use roadstead_proto::api::v1::ConfigUpdate;

use crate::applied::Judgement;
use crate::apply::StoreError;
use crate::behaviour::Decision;
use crate::client::Client;
use crate::observed::{ConfigSeen, EnvironmentSeen, Frame, Observation};
use crate::verdict::{Ending, Plan, plan};

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
        match self.applied.judge(update) {
            Judgement::Stale => return Ending::Stale,
            Judgement::Duplicate => return Ending::Duplicate,
            Judgement::New => {}
        }
        let has_config = self.applied.has_config();
        let plan = plan(update, has_config);
        if let Err(error) = self.write(update, plan).await {
            tracing::error!(%error, "an update could not be applied");
            return Ending::Failed { message: error.to_string(), has_config };
        }
        match plan {
            Plan::Install => {
                self.applied.installed(update);
                self.status.send_modify(|status| {
                    if let Some(config) = &update.sandbox_config {
                        status.config = Some(ConfigSeen::of(config));
                    }
                    if let Some(environment) = &update.provider_environment {
                        status.environment = Some(EnvironmentSeen::of(environment));
                    }
                });
                Ending::Installed
            }
            Plan::Retain => Ending::Retained,
            Plan::Close => {
                self.applied.closed();
                self.status.send_modify(|status| status.config = None);
                Ending::Closed
            }
        }
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
