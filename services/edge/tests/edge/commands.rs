//! Mutations from outside: what reaches the queue, and what comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::pull::{self, Delivery};
use roadstead_proto::api::datamodel::WorkspaceSelector;
use roadstead_proto::api::datamodel::workspace_selector::Selection;
use roadstead_proto::api::v1::{CreateSandboxRequest, CreateWorkspaceRequest};
use roadstead_proto::internal::answer::Outcome;
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::{Answer, Command, Sealed};
use roadstead_proto::method::Method;
use roadstead_proto::role::Role;
use roadstead_proto::sealing::AdmissionSeal;
use roadstead_proto::stream::Consumer;
use roadstead_service_kit::status::Status as RichStatus;
use roadstead_testkit::eventually;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Code;
use uuid::Uuid;

use crate::client::bytes;
use crate::world::{LONG, ROOT, World};

/// Admission, played by the test.
struct Admission {
    seen: Arc<Mutex<Vec<Command>>>,
    /// Answers that may be given.
    turns: Arc<Semaphore>,
    _stop: DropGuard,
}

impl Admission {
    /// Answers each command with `outcome`, as soon as it is its turn.
    fn start(world: &World, turns: usize, replayed: bool, outcome: Outcome) -> Self {
        let seal: Arc<AdmissionSeal> = Arc::new(world.keyring.export(Role::Admission).admission_seal().unwrap());
        let (seen, turns, stop) = (Arc::default(), Arc::new(Semaphore::new(turns)), CancellationToken::new());
        let admission = Self { seen: Arc::clone(&seen), turns: Arc::clone(&turns), _stop: stop.clone().drop_guard() };
        let bus = world.admission.clone();
        tokio::spawn(async move {
            let handler = |delivery: Delivery| {
                let (seal, seen, turns) = (Arc::clone(&seal), Arc::clone(&seen), Arc::clone(&turns));
                let (bus, outcome) = (bus.clone(), outcome.clone());
                async move {
                    turns.acquire().await.unwrap().forget();
                    let sealed = Sealed::decode(delivery.payload().clone()).unwrap();
                    let reply = delivery.reply().unwrap().to_owned();
                    let id: Uuid = reply.rsplit('.').next().unwrap().parse().unwrap();
                    let command = Command::decode(seal.open_command(id, &sealed).unwrap()).unwrap();
                    let answer = Answer { command_id: command.command_id.clone(), replayed, outcome: Some(outcome) };
                    seen.lock().unwrap().push(command);
                    let answer = seal.seal_answer(id, &sealed, &answer.encode_to_vec()).unwrap();
                    bus.publish(reply, Bytes::from(answer.encode_to_vec())).await.unwrap();
                    delivery.ack().await;
                }
            };
            pull::run(&bus, Consumer::Commands, 8, stop, handler).await.unwrap();
        });
        admission
    }

    fn seen(&self) -> Vec<Command> {
        self.seen.lock().unwrap().clone()
    }
}

fn create_workspace(name: &str) -> Bytes {
    bytes(&CreateWorkspaceRequest { name: name.to_owned(), ..Default::default() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_reaches_admission_byte_for_byte_and_its_answer_comes_back() {
    let world = World::new().await;
    let admission = Admission::start(&world, 1, false, Outcome::Response(Bytes::from_static(b"answer")));
    let mut request = create_workspace("w").to_vec();
    request.extend([0xf8, 0x3f, 1]);
    let (answer, metadata) = world.client(ROOT).await.send(Method::CreateWorkspace, request.clone()).await.unwrap();
    assert_eq!(answer, "answer");
    assert!(metadata.get("openshell-replayed").is_none());

    let [command] = admission.seen().try_into().unwrap();
    assert_eq!((command.method.as_str(), &command.request[..]), ("CreateWorkspace", &request[..]));
    let Some(Kind::User(user)) = command.principal.unwrap().kind else { panic!("a user") };
    assert_eq!((user.subject.as_str(), user.platform_admin), ("root", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_marked_in_the_initial_metadata_and_a_refusal_keeps_its_details() {
    let world = World::new().await;
    let client = world.client(ROOT).await;
    {
        let _admission = Admission::start(&world, 1, true, Outcome::Response(Bytes::new()));
        let (_, metadata) = client.send(Method::CreateWorkspace, create_workspace("w")).await.unwrap();
        assert_eq!(metadata.get("openshell-replayed").unwrap(), "true");
    }
    let refusal = RichStatus::invalid("name", "is too long").to_bytes();
    let _admission = Admission::start(&world, 1, false, Outcome::Status(refusal.clone().into()));
    let refused = client.send(Method::CreateWorkspace, create_workspace("w")).await.unwrap_err();
    assert_eq!((refused.code(), refused.details()), (Code::InvalidArgument, &refusal[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_share_counts_also_what_its_client_no_longer_waits_for() {
    let world = World::with(&["--caller-share=2"]).await;
    let admission = Admission::start(&world, 0, false, Outcome::Response(Bytes::new()));
    let client = world.client(ROOT).await;
    for name in ["a", "b"] {
        let send = client.send(Method::CreateWorkspace, create_workspace(name));
        assert!(tokio::time::timeout(Duration::from_millis(500), send).await.is_err(), "nobody answers yet");
    }
    let refused = client.send(Method::CreateWorkspace, create_workspace("c")).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("nothing was done"));

    admission.turns.add_permits(3);
    eventually(LONG, "both were carried through", || async { admission.seen().len() == 2 }).await;
    eventually(LONG, "there is room again", || async {
        client.send(Method::CreateWorkspace, create_workspace("d")).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_deadline_a_mutation_is_said_to_be_of_unknown_outcome() {
    let world = World::new().await;
    let client = world.client(ROOT).await;
    // By hand, for a client that does not end the call by itself.
    let mut call = tokio::net::TcpStream::connect(world.edge.address).await.unwrap();
    let message = create_workspace("w");
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: edge\r\ngrpc-timeout: 300m\r\ncontent-type: application/grpc\r\n\
         authorization: Bearer {ROOT}\r\ncontent-length: {}\r\n\r\n",
        Method::CreateWorkspace.full_path(),
        message.len() + 5,
    );
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    call.write_all(&[head.as_bytes(), &[0], &length, &message].concat()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(LONG, call.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.contains("grpc-status: 4"), "{answer}");
    assert!(answer.contains("outcome%20is%20unknown"), "{answer}");
    client.send(Method::GetCurrentUser, "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_malformed_never_reaches_the_queue() {
    let world = World::new().await;
    let admission = Admission::start(&world, 10, false, Outcome::Response(Bytes::new()));
    let client = world.client(ROOT).await;
    let scoped = |workspace: &str, request_id: &str| {
        let selection = Some(Selection::Workspace(workspace.to_owned()));
        let workspace_scope = Some(WorkspaceSelector { selection });
        bytes(&CreateSandboxRequest { workspace_scope, request_id: request_id.to_owned(), ..Default::default() })
    };
    let request_id = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    for malformed in [
        Bytes::from_static(b"\xff"),
        bytes(&CreateSandboxRequest::default()),
        scoped("", request_id),
        scoped("w", "x"),
        scoped("w", &Uuid::nil().to_string()),
    ] {
        let refused = client.send(Method::CreateSandbox, malformed).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    }
    assert_eq!(admission.seen(), []);
    client.send(Method::CreateSandbox, scoped("w", request_id)).await.unwrap();
}
