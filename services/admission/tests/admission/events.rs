//! Platform events on their way to the broker.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_admission::events::Events;
use roadstead_admission::events::change::Happened;
use roadstead_admission::metrics::Metrics;
use roadstead_bus::activity::{Limit, Reader, Subjects};
use roadstead_proto::api::v1::PlatformEvent;
use roadstead_proto::internal::ActivityLine;
use roadstead_proto::internal::activity_line::Content;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_at_a_graceful_stop_is_published_in_order_and_what_comes_later_is_counted_as_lost() {
    const EACH: usize = 100;
    let world = World::with(1, &[]).await;
    let metrics = Arc::new(Metrics::register(&mut Registry::default()));
    let (events, publisher) = Events::new(world.admission_bus().await, Arc::clone(&metrics));
    let sandboxes = [Uuid::new_v4(), Uuid::new_v4()];
    let happened = |sandbox_id, number: usize| {
        let event = PlatformEvent { reason: number.to_string(), ..Default::default() };
        Happened { sandbox_id, event }
    };
    for number in 0..EACH {
        events.committed(sandboxes.map(|id| happened(id, number)).to_vec());
    }
    let stop = CancellationToken::new();
    stop.cancel();
    publisher.run(stop).await.unwrap();
    events.committed(vec![happened(sandboxes[0], EACH)]);
    assert_eq!((metrics.events.get(), metrics.events_lost.get()), (2 * EACH as u64, 1));

    let reader = Reader::new(&world.edge.bus);
    for sandbox_id in sandboxes {
        let limit = Limit { lines: 2 * EACH, bytes: 1024 * 1024 };
        let page = reader.page(Subjects { sandbox_id, kind: None }, 1, limit).await.unwrap();
        let reasons = page.lines.into_iter().map(|line| match ActivityLine::decode(line.payload).unwrap().content {
            Some(Content::Event(event)) => event.reason,
            other => panic!("{other:?}"),
        });
        assert!(reasons.eq((0..EACH).map(|number| number.to_string())), "in their order");
    }
    world.stop().await;
}
