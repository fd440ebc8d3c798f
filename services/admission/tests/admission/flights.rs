//! What a mutation costs on the wire, and what is lost when any one of its replies is.

use std::collections::BTreeMap;
use std::time::Duration;

use roadstead_proto::method::Method;
use roadstead_store::FlightError;
use roadstead_store::mutation::Outcome;
use roadstead_testkit::proxy::Direction;
use roadstead_testkit::soak;
use uuid::Uuid;

use crate::bare::Bare;
use crate::requests::{self, Request};
use crate::world::create_sandbox;

/// Statements of each mutation in its two flights together, BEGIN and COMMIT among them.
const STATEMENTS: [(Method, u64); 18] = [
    (Method::CreateSandbox, 17),
    (Method::StopSandbox, 15),
    (Method::StartSandbox, 15),
    (Method::DeleteSandbox, 15),
    (Method::CreateSandboxTemplate, 14),
    (Method::DeleteSandboxTemplate, 13),
    (Method::AttachSandboxProvider, 23),
    (Method::DetachSandboxProvider, 23),
    (Method::ExposeService, 15),
    (Method::DeleteService, 15),
    (Method::CreateProvider, 13),
    (Method::UpdateProvider, 17),
    (Method::DeleteProvider, 15),
    (Method::UpdateConfig, 18),
    (Method::CreateWorkspace, 10),
    (Method::DeleteWorkspace, 11),
    (Method::AddWorkspaceMember, 13),
    (Method::RemoveWorkspaceMember, 12),
];
/// What a request id adds to that.
const OF_AN_ID: u64 = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mutation_is_two_round_trips_and_its_statements_are_counted() {
    let mut bare = Bare::new().await;
    let mut counted = BTreeMap::new();
    // The first time a statement is prepared on the connection.
    for (workspace, measured) in [("warm", false), ("warm-ids", false), ("plain", true), ("with-ids", true)] {
        let ids = workspace.ends_with("ids");
        for request in requests::before(workspace) {
            bare.done(&request).await;
        }
        bare.sql.run(requests::MEANWHILE).await;
        for request in requests::each(workspace) {
            let request = if ids { request.with_id() } else { request };
            if !measured {
                bare.done(&request).await;
                continue;
            }
            bare.wire.slow(Direction::ToServer, Duration::from_millis(25));
            bare.wire.slow(Direction::ToClient, Duration::from_millis(25));
            let (turns, statements) = (bare.wire.turns(), bare.wire.messages(Direction::ToServer, "E"));
            bare.done(&request).await;
            let (turns, statements) =
                (bare.wire.turns() - turns, bare.wire.messages(Direction::ToServer, "E") - statements);
            bare.wire.heal();
            assert_eq!(turns, 2, "{}", request.method);
            counted.entry(request.method).or_insert_with(Vec::new).push(statements);
        }
    }
    let expected = STATEMENTS.map(|(method, plain)| (method, vec![plain, plain + OF_AN_ID]));
    assert_eq!(counted, expected.into());
}

/// A mutation that can be made over and over, and how often it was in effect so far.
struct Swept {
    request: fn(u64) -> Request,
    effects: &'static str,
    /// Whether it is refused.
    refused: bool,
}

fn created(at: u64) -> Request {
    Request::new(Method::CreateSandbox, &create_sandbox("w", &format!("box-{at}"), ""))
}

fn updated(at: u64) -> Request {
    let mut provider = requests::provider("held", &format!("value {at}"));
    provider.r#type.clear();
    let request = roadstead_proto::api::v1::UpdateProviderRequest {
        provider: Some(provider),
        workspace_scope: crate::world::scope("w"),
        ..Default::default()
    };
    Request::new(Method::UpdateProvider, &request)
}

fn configured(at: u64) -> Request {
    Request::new(Method::UpdateConfig, &requests::setting("w", "configured", at.is_multiple_of(2)))
}

fn refused(at: u64) -> Request {
    let request = create_sandbox("none", &format!("box-{at}"), "");
    Request::new(Method::CreateSandbox, &request)
}

const SWEPT: [Swept; 4] = [
    Swept {
        request: created,
        effects: "select count(*) from roadstead.sandbox where name like 'box-%'",
        refused: false,
    },
    Swept {
        request: updated,
        effects: "select resource_version from roadstead.provider where name = 'held' and workspace_name = 'w'",
        refused: false,
    },
    Swept {
        request: configured,
        effects: "select coalesce(max(revision), 0) from roadstead.settings_revision",
        refused: false,
    },
    Swept {
        request: refused,
        effects: "select count(*) from roadstead.sandbox where name like 'box-%'",
        refused: true,
    },
];

/// How many replies of each mutation are lost in a plain run, one at a time; all of them in a soak.
const POINTS: usize = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whichever_reply_of_a_transaction_is_lost_the_same_command_has_one_effect_and_says_so() {
    let mut bare = Bare::new().await;
    for request in requests::before("w") {
        bare.done(&request).await;
    }
    let mut at = 0;
    for (swept, with_id) in SWEPT.iter().flat_map(|swept| [(swept, false), (swept, true)]) {
        let mut fresh = || {
            at += 1;
            let request = (swept.request)(at);
            if with_id { request.with_id() } else { request }
        };
        // Once to prepare the statements, once to count the replies.
        let request = fresh();
        bare.attempt(Uuid::now_v7(), request.method, &request.bytes()).await.unwrap();
        let (request, begun) = (fresh(), bare.wire.all_messages(Direction::ToClient));
        let mut between = 0;
        let came = || bare.wire.all_messages(Direction::ToClient);
        bare.attempt_with(Uuid::now_v7(), request.method, &request.bytes(), || between = came()).await.unwrap();
        let (first, both) = (usize::try_from(between - begun).unwrap(), usize::try_from(came() - begun).unwrap());
        assert!(first > 10 && both > first + 3, "{first} of {both}");

        let step = if soak::factor() > 1 { 1 } else { both.div_ceil(POINTS) };
        // The last one is the answer to the COMMIT.
        for point in (0..both).step_by(step).chain([first - 1, first, both - 1]) {
            let what = format!("{} {with_id}: reply {point} of {first} and {both}", request.method);
            let (warm, request, id) = (fresh(), fresh(), Uuid::now_v7());
            settled(&bare, Uuid::now_v7(), &warm).await;
            let before = effects(&mut bare, swept).await;
            let last = if point < first { first } else { both };
            bare.wire.lose_replies_after(point, last - point);
            let lost = bare.attempt(id, request.method, &request.bytes()).await;
            match (&lost, point < first) {
                (Err(FlightError::Unavailable(_)), true) | (Err(FlightError::Lost(_)), false) => {}
                _ => panic!("{what}: {lost:?}"),
            }
            bare.wire.heal();
            let told = settled(&bare, id, &request).await;
            let answered = matches!(told, Outcome::Response { replayed: false, .. });
            assert_eq!(answered, !swept.refused, "{what}: {told:?}");
            let expected = before + u64::from(!swept.refused);
            assert_eq!(effects(&mut bare, swept).await, expected, "{what}");
            // And for ever.
            assert_eq!(settled(&bare, id, &request).await, told, "{what}");
            if with_id && !swept.refused {
                let again = settled(&bare, Uuid::now_v7(), &request).await;
                assert!(matches!(again, Outcome::Response { replayed: true, .. }), "{what}: {again:?}");
            }
            assert_eq!(effects(&mut bare, swept).await, expected, "{what}");
        }
    }
}

async fn effects(bare: &mut Bare, swept: &Swept) -> u64 {
    bare.sql.value(swept.effects).await.parse().unwrap()
}

/// The same command until it is settled: a transaction whose client is gone may hold its row for a moment.
async fn settled(bare: &Bare, id: Uuid, request: &Request) -> Outcome {
    for _ in 0..200 {
        match bare.attempt(id, request.method, &request.bytes()).await {
            Ok(outcome) => return outcome,
            Err(FlightError::Busy(_) | FlightError::Unavailable(_) | FlightError::Retry(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("never settled");
}
