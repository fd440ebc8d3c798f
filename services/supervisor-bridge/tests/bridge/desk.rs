//! Plays admission: answers reports, renewals, and remembers what it was told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use prost::Message;
use roadstead_bus::pull::{self, Delivery};
use roadstead_bus::service::{self, Endpoint};
use roadstead_bus::{Bus, topology};
use roadstead_proto::internal::answer::Outcome;
use roadstead_proto::internal::principal::Kind;
use roadstead_proto::internal::{
    Answer, ClockReading, Command, EndSession, RegisterSession, Renewed, Sealed, SessionEnded, SessionRegistered,
    SessionResult, SessionResultRecorded,
};
use roadstead_proto::sealing::AdmissionSeal;
use roadstead_proto::stream::Consumer;
use roadstead_proto::subject;
use roadstead_service_kit::status::{Code, Status};
use roadstead_testkit::eventually;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::LONG;

/// A report as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) method: String,
    pub(crate) command_id: String,
    pub(crate) sandbox_id: String,
    /// Whether it carried the sandbox's token.
    pub(crate) token: bool,
    pub(crate) request: Bytes,
    pub(crate) at: tokio::time::Instant,
}

#[derive(Default)]
struct State {
    told: Vec<Told>,
    /// The session of each sandbox.
    sessions: HashMap<String, String>,
    /// Answers to give before any other, by method.
    scripted: HashMap<String, VecDeque<Answered>>,
    judged_gone: bool,
    renewals: usize,
}

#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) workspace_id: Uuid,
    state: Arc<Mutex<State>>,
}

impl Desk {
    /// Makes the topology and begins to answer.
    pub(crate) async fn open(bus: &Bus, seal: AdmissionSeal, stop: CancellationToken) -> Self {
        topology::ensure(bus, 1).await.unwrap();
        let desk = Self { workspace_id: Uuid::new_v4(), state: Arc::default() };
        let seal = Arc::new(seal);
        let (reports, pulled_by, stopped) = (desk.clone(), bus.clone(), stop.clone());
        let inner = bus.clone();
        tokio::spawn(async move {
            let handler = move |delivery: Delivery| {
                let (desk, seal, bus) = (reports.clone(), Arc::clone(&seal), inner.clone());
                async move { desk.take(&bus, &seal, delivery).await }
            };
            pull::run(&pulled_by, Consumer::Reports, 16, stopped, handler).await.unwrap();
        });
        let (serving, answering) = (bus.clone(), desk.clone());
        tokio::spawn(async move {
            let renewed = answering.clone();
            let endpoints = vec![
                Endpoint::new(subject::RENEW, move |_| {
                    let desk = renewed.clone();
                    async move { desk.renewed() }
                }),
                Endpoint::new(subject::CLOCK, |_| async {
                    ClockReading { now_micros: now_micros() }.encode_to_vec().into()
                }),
            ];
            service::serve(&serving, "admission", endpoints, 8, stop).await.unwrap();
        });
        desk
    }

    /// What it was told under this name.
    pub(crate) fn told(&self, method: &str) -> Vec<Told> {
        self.state.lock().unwrap().told.iter().filter(|told| told.method == method).cloned().collect()
    }

    /// Waits for the report of this name with this place among them.
    pub(crate) async fn wait<M: Message + Default>(&self, method: &str, place: usize) -> M {
        let what = format!("report {place} of {method}");
        let told = eventually(LONG, &what, || async { self.told(method).get(place).cloned() }).await;
        M::decode(told.request).unwrap()
    }

    /// Waits for a result with this property.
    pub(crate) async fn result(&self, property: impl Fn(&SessionResult) -> bool) -> SessionResult {
        eventually(LONG, "a result of that kind", || async {
            let results = self.told("SessionResult").into_iter();
            results.map(|told| SessionResult::decode(told.request).unwrap()).find(|result| property(result))
        })
        .await
    }

    /// The session that it takes for the sandbox's.
    pub(crate) fn session(&self, sandbox_id: Uuid) -> Option<String> {
        self.state.lock().unwrap().sessions.get(&sandbox_id.to_string()).cloned()
    }

    /// Another session takes the sandbox's place.
    pub(crate) fn supersede(&self, sandbox_id: Uuid) {
        self.state.lock().unwrap().sessions.insert(sandbox_id.to_string(), Uuid::new_v4().to_string());
    }

    /// Answers the next report of this name so.
    pub(crate) fn answer_next(&self, method: &str, answer: Answered) {
        self.state.lock().unwrap().scripted.entry(method.to_owned()).or_default().push_back(answer);
    }

    /// Answers the next report of this name and sandbox so.
    pub(crate) fn answer_next_of(&self, method: &str, sandbox_id: Uuid, answer: Answered) {
        self.answer_next(&format!("{method} of {sandbox_id}"), answer);
    }

    /// What the next renewals are told.
    pub(crate) fn judge(&self, gone: bool) {
        self.state.lock().unwrap().judged_gone = gone;
    }

    /// Waits until so many more renewals were answered.
    pub(crate) async fn renewals(&self, more: usize) {
        let so_far = self.state.lock().unwrap().renewals;
        eventually(LONG, "renewals", || async { self.state.lock().unwrap().renewals >= so_far + more }).await;
    }

    fn renewed(&self) -> Bytes {
        let mut state = self.state.lock().unwrap();
        state.renewals += 1;
        let judged_gone = state.judged_gone;
        Renewed { judged_gone, now_micros: now_micros() }.encode_to_vec().into()
    }

    async fn take(&self, bus: &Bus, seal: &AdmissionSeal, delivery: Delivery) {
        let sealed = Sealed::decode(delivery.payload().clone()).unwrap();
        let reply = delivery.reply().unwrap().to_owned();
        let id: Uuid = reply.rsplit('.').next().unwrap().parse().unwrap();
        let command = Command::decode(seal.open_command(id, &sealed).unwrap()).unwrap();
        let outcome = match self.decide(&command) {
            Ok(response) => Outcome::Response(response),
            Err(status) => Outcome::Status(status),
        };
        let answer = Answer { command_id: id.to_string(), outcome: Some(outcome), replayed: false };
        let sealed = seal.seal_answer(id, &sealed, &answer.encode_to_vec()).unwrap();
        bus.publish(reply, sealed.encode_to_vec().into()).await.unwrap();
        delivery.ack().await;
    }

    fn decide(&self, command: &Command) -> Answered {
        let Some(Kind::Sandbox(sandbox)) = command.principal.clone().and_then(|principal| principal.kind) else {
            panic!("a report of no sandbox")
        };
        let mut state = self.state.lock().unwrap();
        state.told.push(Told {
            method: command.method.clone(),
            command_id: command.command_id.clone(),
            sandbox_id: sandbox.sandbox_id.clone(),
            token: !sandbox.token.is_empty(),
            request: command.request.clone(),
            at: tokio::time::Instant::now(),
        });
        for script in [command.method.clone(), format!("{} of {}", command.method, sandbox.sandbox_id)] {
            if let Some(scripted) = state.scripted.get_mut(&script).and_then(VecDeque::pop_front) {
                return scripted;
            }
        }
        let held = state.sessions.get(&sandbox.sandbox_id).cloned();
        match command.method.as_str() {
            "RegisterSession" => {
                let request = RegisterSession::decode(command.request.clone()).unwrap();
                state.sessions.insert(sandbox.sandbox_id, request.session_id);
                encoded(&SessionRegistered { workspace_id: self.workspace_id.to_string(), resource_version: 2 })
            }
            "SessionResult" => {
                let result = SessionResult::decode(command.request.clone()).unwrap();
                if held == Some(result.session_id) {
                    encoded(&SessionResultRecorded {})
                } else {
                    refusal(Code::Aborted, "this session is not the sandbox's")
                }
            }
            "EndSession" => {
                let end = EndSession::decode(command.request.clone()).unwrap();
                if held == Some(end.session_id) {
                    state.sessions.remove(&sandbox.sandbox_id);
                }
                encoded(&SessionEnded {})
            }
            _ => Ok(Bytes::new()),
        }
    }
}

/// An encoded response, or an encoded status.
pub(crate) type Answered = Result<Bytes, Bytes>;

#[allow(clippy::unnecessary_wraps, reason = "beside refusals")]
pub(crate) fn encoded(message: &impl Message) -> Answered {
    Ok(message.encode_to_vec().into())
}

pub(crate) fn refusal(code: Code, message: &str) -> Answered {
    Err(Status::new(code, message).to_bytes().into())
}

fn now_micros() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}
