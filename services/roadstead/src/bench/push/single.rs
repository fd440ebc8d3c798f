//! Changes of one sandbox, one at a time, on their way to its supervisor.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use roadstead_proto::api::v1::SandboxPhase;
use roadstead_supervisor::TokenSource;

use super::supervised::Supervised;
use crate::bench::figure::Figure;
use crate::bench::measure::{Measure, Ran};
use crate::bench::path::{self, Load, Mutate};
use crate::bench::stage::{Stage, WORKSPACE};
use crate::demo::watched::Watched;

const PATIENCE: Duration = Duration::from_secs(30);
/// The sandbox that is changed.
const AT: usize = 0;

/// A supervised sandbox, and the caller who changes it.
pub(crate) struct Single {
    supervised: Supervised,
    mutate: Mutate,
}

impl Single {
    /// Starts its supervisor, and waits until it is READY.
    pub(crate) async fn of(stage: &Stage) -> anyhow::Result<Self> {
        let sandbox = path::sandbox(AT);
        let token = TokenSource::File(stage.target.token(WORKSPACE, &sandbox).await?);
        let supervised = Supervised::start(&stage.doors.bridge, &sandbox, token).await?;
        let mut watched = Watched::open(stage.users[AT].clone(), WORKSPACE, &sandbox).await?;
        let ready = |phase| phase == SandboxPhase::Ready;
        watched
            .until(PATIENCE, |seen| seen.shown.last().is_some_and(|(_, phase)| ready(*phase)))
            .await
            .context("the sandbox did not become ready")?;
        Ok(Self { supervised, mutate: path::mutate(stage, Load::apart(false), AT) })
    }

    /// Changes it again and again: how long it took after each answer until the supervisor had the change.
    pub(crate) async fn change(&mut self, what: &'static str, measure: Measure) -> anyhow::Result<Figure> {
        let (began, mut took) = (Instant::now(), Vec::new());
        while began.elapsed() < measure.time {
            let wanted = self.mutate.change().await?;
            let answered = Instant::now();
            let seen = self.supervised.until(|seen| seen.settings.number >= wanted).await?;
            took.push(seen.settings.at.saturating_duration_since(answered));
        }
        Ok(Figure::of(what, 1, Ran { took, time: began.elapsed(), errors: BTreeMap::new() }))
    }
}
