//! What goes over the wire: two flights a mutation, one a read; and what is known when an answer does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use roadstead_proto::api::v1::WorkspaceRole;
use roadstead_store::FlightError;
use roadstead_store::mutation::{
    Ledger, Lock, Locks, ProviderLock, Providers, Reads, Sandboxes, Write,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::{World, by_id, claimed, command, effect, in_workspace, next, response, workspace};

/// Stands between the store and Postgres.
#[derive(Clone)]
struct Wire {
    url: String,
    /// Of each direction, in milliseconds.
    delay: Arc<AtomicU64>,
    /// Ends the connection instead of handing over what Postgres says.
    lose_replies: Arc<AtomicBool>,
}

impl Wire {
    async fn to(url: &str) -> Self {
        let (server, database) = url.strip_prefix("postgres://").unwrap().split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://{}/{database}", listener.local_addr().unwrap());
        let wire = Self { url, delay: Arc::default(), lose_replies: Arc::default() };
        let (server, shared) = (server.to_owned(), wire.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let postgres = TcpStream::connect(&server).await.unwrap();
                client.set_nodelay(true).unwrap();
                postgres.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_postgres, to_postgres) = postgres.into_split();
                let shared = shared.clone();
                tokio::spawn(async move {
                    let never = AtomicBool::new(false);
                    tokio::select! {
                        () = carry(from_client, to_postgres, &shared.delay, &never) => {}
                        () = carry(from_postgres, to_client, &shared.delay, &shared.lose_replies) => {}
                    }
                });
            }
        });
        wire
    }

    fn delay(&self, delay: Duration) {
        self.delay.store(delay.as_millis().try_into().unwrap(), SeqCst);
    }
}

/// Hands over what comes, each piece after the delay, until one side ends or a piece is to be lost.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: &AtomicU64, lose: &AtomicBool) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let read = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + Duration::from_millis(delay.load(SeqCst));
            if lose.load(SeqCst) || sender.send((due, buffer[..read].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! { () = read => {}, () = write => {} }
}

async fn through_a_wire() -> (World, Wire) {
    let mut wire = None;
    let postgres_url = |url: &str| {
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(Wire::to(url)))
    };
    let world = World::with(|settings| {
        let made = postgres_url(&settings.url);
        settings.url = made.url.clone();
        settings.pool_size = 1;
        wire = Some(made);
    })
    .await;
    (world, wire.unwrap())
}

const ONE_WAY: Duration = Duration::from_millis(150);

/// How many times what `work` sends waits for an answer.
async fn round_trips<T>(wire: &Wire, work: impl AsyncFnOnce() -> T) -> (u128, T) {
    wire.delay(ONE_WAY);
    let begun = Instant::now();
    let result = work().await;
    let trips = begun.elapsed().as_millis() / (2 * ONE_WAY).as_millis();
    wire.delay(Duration::ZERO);
    (trips, result)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutation_is_two_flights_whatever_it_locks_reads_and_writes() {
    let (world, wire) = through_a_wire().await;
    let w = world.workspace("w").await;
    world.member(&w, "ann", WorkspaceRole::User).await;
    let p = world.provider(&w, "p").await;
    let mut s = world.sandbox(&w, "s").await;
    let locks = Locks {
        subject: Some("ann".into()),
        member: Some("bob".into()),
        global: true,
        providers: Providers::Named(vec!["p".into()], ProviderLock::Share),
        sandboxes: Sandboxes::Named("s".into()),
        reads: Reads {
            attached_providers: true,
            policy: true,
            global_policy: true,
            sandbox_settings: true,
            global_settings: true,
            blockers: true,
            member_count: true,
            session_owner: true,
            policy_version: Some(1),
        },
        ..in_workspace("w", Lock::Update)
    };
    // The first of its kind on a connection prepares its statements.
    for attempt in 0..2 {
        let command = claimed("w", Uuid::new_v4());
        s = next(&s, |row| row.generation += 1);
        let attach = match attempt {
            0 => Write::Attach { sandbox_id: s.id, provider_id: p.id },
            _ => Write::Detach { sandbox_id: s.id, provider_id: p.id },
        };
        let writes = vec![Write::UpdateSandbox(s.clone()), attach];
        let mutation = async || {
            let in_flight = world.first(&command, &locks).await.unwrap();
            in_flight.conclude(effect(writes)).await.unwrap()
        };
        match attempt {
            0 => drop(mutation().await),
            _ => assert_eq!(round_trips(&wire, mutation).await.0, 2),
        }
        // A detachment of its own, so that the second attempt has nothing to prepare but that.
        if attempt == 0 {
            s = next(&s, |row| row.generation += 1);
            let detach = Write::Detach { sandbox_id: s.id, provider_id: p.id };
            let attach = Write::Attach { sandbox_id: s.id, provider_id: p.id };
            world.write(vec![Write::UpdateSandbox(s.clone()), detach, attach]).await;
        }
    }
    let refusal = bytes::Bytes::from_static(b"no");
    world.store.record_refusal(&command(), &refusal).await.unwrap();
    let (trips, _) = round_trips(&wire, async || world.store.record_refusal(&command(), &refusal).await).await;
    assert_eq!(trips, 1);
    world.store.epoch().await.unwrap();
    assert_eq!(round_trips(&wire, async || world.store.epoch().await).await.0, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_commit_is_found_out_by_the_same_command() {
    let (mut world, wire) = through_a_wire().await;
    let command = command();
    let in_flight = world.first(&command, &Locks::default()).await.unwrap();
    wire.lose_replies.store(true, SeqCst);
    let lost = in_flight.conclude(effect(vec![Write::InsertWorkspace(workspace("w"))])).await;
    assert!(matches!(lost, Err(FlightError::Lost(_))), "{lost:?}");
    wire.lose_replies.store(false, SeqCst);
    // Whether the COMMIT arrived or not, there is one answer from now on, and it is true.
    let again = loop {
        match world.first(&command, &Locks::default()).await {
            Ok(in_flight) => break in_flight,
            Err(FlightError::Busy(_) | FlightError::Unavailable(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    };
    let there = world.sql.value("select count(*) from roadstead.workspace where name = 'w'").await;
    match &again.loaded().ledger {
        Ledger::Settled(outcome) => assert_eq!((outcome, there.as_str()), (&response("done"), "1")),
        Ledger::Fresh => assert_eq!(there, "0"),
        other @ Ledger::Claimed(_) => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_in_the_first_flight_leaves_nothing() {
    let (world, wire) = through_a_wire().await;
    world.store.now().await.unwrap();
    wire.lose_replies.store(true, SeqCst);
    let lost = world.first(&command(), &by_id(Uuid::new_v4())).await;
    assert!(matches!(lost, Err(FlightError::Unavailable(_))), "{lost:?}");
    wire.lose_replies.store(false, SeqCst);
    world.write(vec![Write::InsertWorkspace(workspace("w"))]).await;
}
