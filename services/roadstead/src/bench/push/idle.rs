//! What sessions cost to which nothing happens, beside what a connection costs by itself.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use roadstead_proto::api::v1::HealthRequest;

use super::fleet::{AT_A_TIME, Fleet};
use crate::bench::figure::{Reading, Report};
use crate::bench::measure::Measure;
use crate::bench::process;
use crate::bench::rest::Rest;
use crate::bench::stage::Stage;
use crate::client::connect::{Client, Connection};

/// Memory of the bridge for one more session and its connection, in KiB.
const MEMORY_KIB: f64 = 30.0;

/// Also the bridge's memory with all of them, in KiB.
pub(crate) async fn measure(stage: &Stage, measure: Measure, fleet: &mut Fleet) -> anyhow::Result<(Report, f64)> {
    let mut rest = Rest::of(stage, measure, "idle sessions", "the bridge", &stage.doors.bridge)?;
    let few = fleet.sandboxes() / 5;
    rest.measure(0).await?;
    let floor = connection_kib(stage, few).await?;
    for size in [few, fleet.sandboxes()] {
        fleet.grow(size).await?;
        rest.measure(size).await?;
    }
    let mut report = rest.report(MEMORY_KIB)?;
    let what = "  its floor: memory of the bridge for a connection without a session".to_owned();
    report.readings.push(Reading { what, value: floor, unit: "KiB" });
    Ok((report, rest.resident_kib()))
}

/// Memory of the bridge for a connection that has had one call, in KiB. What it frees then the first sessions take.
async fn connection_kib(stage: &Stage, connections: usize) -> anyhow::Result<f64> {
    let bridge = process::behind(stage, &stage.doors.bridge)?;
    let before = process::resident_kib(bridge)?;
    let opening = (0..connections).map(|_| connect(&stage.doors.bridge));
    let open: Vec<_> = stream::iter(opening).buffer_unordered(AT_A_TIME).try_collect().await?;
    #[allow(clippy::cast_precision_loss, reason = "a handful of digits is shown")]
    let each = (process::resident_kib(bridge)? - before) / open.len() as f64;
    Ok(each)
}

async fn connect(bridge: &str) -> anyhow::Result<Client> {
    let mut client = Connection::anonymous(bridge).open_stream().await?;
    client.health(HealthRequest {}).await?;
    Ok(client)
}
