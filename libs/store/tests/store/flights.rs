//! What goes over the wire: two flights a mutation, one a read; and what is known when an answer does not come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use roadstead_proto::api::v1::{PolicyStatus, WorkspaceRole};
use roadstead_proto::role::Role;
use roadstead_store::inputs::Named;
use roadstead_store::liveness::ProcessKind;
use roadstead_store::mutation::{ByName, Ledger, Lock, Locks, Providers, Reads, Sandboxes, Write};
use roadstead_store::read::{After, Page, Reader};
use roadstead_store::{FlightError, row};
use roadstead_testkit::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::world::{
    CALLER, World, by_id, claimed, command, effect, in_workspace, next, pairs, policy, response, service, session,
    setting, template, workspace,
};

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
    let postgres_url =
        |url: &str| tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(Wire::to(url)));
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
        template: Some(ByName { name: "t".into(), lock: Lock::Update }),
        global: true,
        providers: Providers::Named(vec!["p".into()], Lock::Share),
        sandboxes: Sandboxes::Named("s".into()),
        reads: Reads {
            attached_providers: true,
            policy: true,
            global_policy: true,
            sandbox_settings: true,
            global_settings: true,
            blockers: true,
            member_count: true,
            template_count: true,
            services: true,
            receipt: true,
            session_owner: true,
            observation: true,
            pending_receipts: true,
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

/// Plans are made once, on tables that may be empty then; each statement must have its index.
#[tokio::test]
async fn no_statement_reads_a_whole_table() {
    let world = World::new().await;
    let w = world.workspace("w").await;
    world.member(&w, "ann", WorkspaceRole::User).await;
    let p = world.provider(&w, "p").await;
    let s = world.sandbox(&w, "s").await;
    let (t, web) = (template(&w, "t"), service(&s, "web"));
    let (watch, builder) = (world.role(Role::Watch), world.role(Role::ConfigSnapshot));
    let reader = Reader { subject: Some("ann") };
    let every = || Page { labels: pairs(&[]), after: After::default(), most: 10 };
    let page = || Page { labels: pairs(&[("app", "s"), ("tier", "gold")]), ..every() };
    world
        .write(vec![
            Write::InsertTemplate(t.clone()),
            Write::InsertService(web.clone()),
            Write::UpdateService(row::ServiceEndpoint { resource_version: 2, ..web.clone() }),
            Write::Attach { sandbox_id: s.id, provider_id: p.id },
            Write::InsertPolicyRevision(policy(Some(s.id), 1)),
            Write::SettlePolicy { scope: Some(s.id), version: 1, status: PolicyStatus::Loaded, error: String::new() },
            Write::PutSetting { scope: Some(s.id), key: "k".into(), value: setting("v") },
            Write::SetSettingsRevision { scope: Some(s.id), revision: 1 },
            Write::UpdateSandbox(next(&s, |row| row.session = Some(session(Uuid::new_v4())))),
        ])
        .await;
    let every_read = Reads {
        attached_providers: true,
        policy: true,
        global_policy: true,
        sandbox_settings: true,
        global_settings: true,
        blockers: true,
        member_count: true,
        template_count: true,
        services: true,
        receipt: true,
        session_owner: true,
        observation: true,
        pending_receipts: true,
        policy_version: Some(1),
    };
    let selections = [
        (Sandboxes::Named("s".into()), every_read),
        (Sandboxes::ById(s.id), every_read),
        (Sandboxes::OfLockedProviders, Reads { attached_providers: true, ..Reads::default() }),
    ];
    for (sandboxes, reads) in selections {
        let locks = Locks {
            subject: Some("ann".into()),
            template: Some(ByName { name: "t".into(), lock: Lock::Share }),
            global: true,
            providers: Providers::Named(vec!["p".into()], Lock::Update),
            sandboxes,
            reads,
            ..in_workspace("w", Lock::Share)
        };
        let in_flight = world.first(&claimed("w", Uuid::new_v4()), &locks).await.unwrap();
        in_flight.conclude(effect(Vec::new())).await.unwrap();
    }
    watch.workspace("w", reader).await.unwrap();
    for page in [every(), page()] {
        watch.workspaces(reader, page.clone()).await.unwrap();
        watch.workspaces(Reader::ADMIN, page.clone()).await.unwrap();
        watch.sandboxes("w", reader, page.clone()).await.unwrap();
        watch.sandboxes_everywhere(page.clone()).await.unwrap();
        watch.templates("w", reader, page.clone()).await.unwrap();
        watch.templates_everywhere(page.clone()).await.unwrap();
        watch.providers("w", reader, page.clone()).await.unwrap();
        watch.providers_everywhere(page.clone()).await.unwrap();
    }
    watch.members("w", reader, page()).await.unwrap();
    watch.sandbox("w", "s", reader).await.unwrap();
    watch.template("w", "t", reader).await.unwrap();
    watch.service("w", "s", "web", reader).await.unwrap();
    watch.services("w", reader, page()).await.unwrap();
    watch.sandbox_services("w", "s", reader, page()).await.unwrap();
    watch.services_everywhere(page()).await.unwrap();
    watch.provider("w", "p", reader).await.unwrap();
    watch.sandbox_providers("w", "s", reader, "", 10).await.unwrap();
    watch.policy_revision("w", "s", reader, None).await.unwrap();
    watch.policy_revisions("w", "s", reader, None, 10).await.unwrap();
    watch.sandbox_entries(&[s.id]).await.unwrap();
    watch.sandbox_versions(Uuid::nil(), 10).await.unwrap();
    watch.rights(w.id).await.unwrap();
    builder.next_snapshot_inputs(&[s.id]).await.unwrap();
    builder.next_snapshot_sequence().await.unwrap();
    builder.standing(s.id).await.unwrap();
    let asked = [Named { workspace: "w".into(), name: "s".into(), subject: Some("ann".into()) }];
    builder.snapshot_inputs_by_name(&asked).await.unwrap();
    builder.sandboxes_of_provider(p.id, Uuid::nil(), 10).await.unwrap();
    builder.all_sandboxes(Uuid::nil(), 10).await.unwrap();
    world.store.renew(ProcessKind::Admission, world.store.process_id()).await.unwrap();
    assert!(world.store.lost_sessions(10).await.unwrap().is_none());
    assert!(world.store.past_deadline(10, &[]).await.unwrap().is_none());
    world.store.nearest_deadline().await.unwrap();
    assert!(world.store.expire_credentials(10).await.unwrap().is_empty());
    world.store.delete_old_commands(10).await.unwrap();
    world.store.delete_old_claims(10).await.unwrap();
    world.store.delete_old_claims_of(&CALLER, 10).await.unwrap();
    world.store.delete_old_processes(10).await.unwrap();
    world.store.unresolved((std::time::SystemTime::UNIX_EPOCH, Uuid::nil()), 10).await.unwrap();
    world.store.unresolved_claims().await.unwrap();
    world.store.left_behind(10).await.unwrap();
    world.write(vec![Write::DeleteService(web.id), Write::DeleteTemplate(t.id)]).await;
    world.write(vec![Write::Detach { sandbox_id: s.id, provider_id: p.id }, Write::DeleteSandbox(s.id)]).await;
    world.write(vec![Write::DeleteProvider(p.id), Write::DeleteWorkspace(w.id)]).await;

    // The counts arrive with the end of the connections. A few rows are not worth an index.
    drop((watch, builder));
    let World { postgres, store, sql } = world;
    drop(store);
    drop(sql);
    let scans = "select string_agg(relname, ' ') from pg_stat_user_tables where seq_scan > 0 and relname not in \
        ('epoch', 'effect', 'refinery_schema_history')";
    // The table of one row, which four of the reads look at, tells that all have arrived.
    let used = "select (select idx_scan >= 40 from pg_stat_user_tables where relname = 'sandbox') \
        and (select seq_scan = 4 from pg_stat_user_tables where relname = 'epoch')";
    eventually(Duration::from_secs(20), "statistics have arrived", async || {
        postgres.session().await.value(used).await == "t"
    })
    .await;
    assert_eq!(postgres.session().await.value(scans).await, "");
}

#[tokio::test]
async fn the_second_write_of_the_ledger_touches_no_index() {
    let world = World::new().await;
    for _ in 0..60 {
        let command = claimed("w", Uuid::new_v4());
        let in_flight = world.first(&command, &Locks::default()).await.unwrap();
        in_flight.conclude(effect(Vec::new())).await.unwrap();
    }
    let World { postgres, store, sql } = world;
    drop(store);
    drop(sql);
    let counts = "select sum(n_tup_upd) >= 120 and sum(n_tup_hot_upd) * 10 >= sum(n_tup_upd) * 9 \
        from pg_stat_user_tables where relname in ('command', 'claim')";
    eventually(Duration::from_secs(20), "the statistics show it", async || {
        postgres.session().await.value(counts).await == "t"
    })
    .await;
}
