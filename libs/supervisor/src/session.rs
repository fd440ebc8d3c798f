//! One session with a bridge, from connecting to its end. Each thing that is done beside the stream has a file.

mod end;
mod exit;
mod polling;
mod proposal;
mod readiness;
mod renewal;
mod retry;

use std::time::Duration;

use roadstead_proto::api::v1::gateway_message::Payload as FromBridge;
use roadstead_proto::api::v1::open_shell_client::OpenShellClient;
use roadstead_proto::api::v1::supervisor_message::Payload as ToBridge;
use roadstead_proto::api::v1::{
    ConfigUpdate, GatewayMessage, SessionAccepted, SupervisorHeartbeat, SupervisorHello, SupervisorMessage,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tonic::{Status, Streaming};

pub(crate) use self::end::End;
use self::polling::Polling;
use self::retry::Retry;
use crate::calls;
use crate::client::{Client, Connection};
use crate::log;
use crate::observed::{Frame, Observation};
use crate::poll::Polled;
use crate::readiness::Said;
use crate::token::Token;
use crate::verdict::{Ending, answer};

/// How long the bridge may take to accept a session.
const ACCEPT: Duration = Duration::from_secs(30);
/// How long the bridge may take to end the stream after this side has.
const FAREWELL: Duration = Duration::from_secs(2);
/// Heartbeats when the bridge does not say how often.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Heartbeats of the bridge that may be missing.
const MISSING_HEARTBEATS: u32 = 3;
/// Largest message that is accepted.
const MESSAGE_BYTES: usize = 4 * 1024 * 1024;
/// Answers and heartbeats that may wait for the bridge to read.
const OUTBOUND: usize = 16;

/// What a call beside the stream came to.
enum Done {
    ExitTold(Result<(), Status>),
    Renewed(Result<Token, Status>),
    PolicyProposed(Result<u32, Status>),
    LogEnded(Result<(), Status>),
    ReadinessHeard(Result<Option<Duration>, Status>),
    Polled(Box<Result<Polled, Status>>),
    /// The word at this place.
    WordTold(u64, Result<(), Status>),
}

/// Connects, at the word of another bridge if `redirected`, and has one session.
pub(crate) async fn run(client: &mut Client, endpoint: &Endpoint, redirected: bool, stop: &CancellationToken) -> End {
    match stop.run_until_cancelled(open(client, endpoint, redirected)).await {
        None => End::Stopped,
        Some(Err(end)) => end,
        Some(Ok(session)) => session.follow(client, stop).await,
    }
}

/// An accepted session.
struct Session {
    id: String,
    api: calls::Api,
    inbound: Streaming<GatewayMessage>,
    outbound: mpsc::Sender<SupervisorMessage>,
    heartbeat: Duration,
    bootstrap: Option<ConfigUpdate>,
    /// Updates so far.
    order: u64,
    calls: JoinSet<Done>,
    polling: Polling,
    renewal: Retry,
    proposal: Retry,
    log: Retry,
    exit: Retry,
    /// The end of the main process was told.
    over: bool,
    readiness: Retry,
    said: Said,
    /// Whether a word on readiness is on its way.
    saying: bool,
}

async fn open(client: &mut Client, endpoint: &Endpoint, redirected: bool) -> Result<Session, End> {
    let channel = endpoint.connect().await.map_err(End::Unreachable)?;
    let mut api = OpenShellClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    // Someone may have put a fresh token there.
    if let Ok(token) = client.settings.token.load() {
        client.token = token;
    }
    renewal::before_connecting(client, &api).await;
    // One whose main process has ended needs none, and who is refused one may still tell the exit.
    let exited = client.exit.borrow().is_some();
    if !exited && !client.settings.takes_pushes && !client.applied.has_config() {
        polling::before_connecting(client, &api).await?;
    }

    let (outbound, messages) = mpsc::channel(OUTBOUND);
    client.connection_epoch += 1;
    let hello = SupervisorHello {
        sandbox_id: client.token.sandbox_id().to_string(),
        instance_id: client.settings.instance_id.to_string(),
        connection_epoch: client.connection_epoch,
        supports_config_push: client.settings.takes_pushes,
        supports_provider_readiness: client.settings.reports_readiness,
        supports_session_redirect: true,
        redirected,
    };
    queue(&outbound, ToBridge::Hello(hello))?;
    let request = calls::authorized(&client.token, ReceiverStream::new(messages)).map_err(End::Refused)?;
    let accepting = async {
        let mut inbound = api.connect_supervisor(request).await?.into_inner();
        let first = inbound.message().await?;
        Ok((inbound, first))
    };
    let late = |_| Status::deadline_exceeded("the bridge did not accept the session in time");
    let (inbound, first) =
        tokio::time::timeout(ACCEPT, accepting).await.map_err(late).flatten().map_err(End::Refused)?;
    match first.and_then(|message| message.payload) {
        Some(FromBridge::SessionAccepted(accepted)) => Ok(Session::begin(client, api, inbound, outbound, accepted)),
        Some(FromBridge::SessionRejected(rejected)) => Err(End::Refused(Status::aborted(rejected.reason))),
        Some(FromBridge::SessionRedirect(redirect)) => Err(End::Redirected(redirect.peer_endpoint)),
        Some(_) => Err(End::Broken("the bridge did not begin with its acceptance")),
        None => Err(End::Broken("the bridge ended the session before it began")),
    }
}

impl Session {
    fn begin(
        client: &mut Client,
        api: calls::Api,
        inbound: Streaming<GatewayMessage>,
        outbound: mpsc::Sender<SupervisorMessage>,
        accepted: SessionAccepted,
    ) -> Self {
        client.applied.begin_session();
        let heartbeat = accepted.heartbeat_interval.and_then(|interval| Duration::try_from(interval).ok());
        let heartbeat = heartbeat.filter(|interval| !interval.is_zero()).unwrap_or(HEARTBEAT);
        let session_id = accepted.session_id;
        let pushes = accepted.config_push_enabled;
        client.status.send_modify(|status| {
            status.sessions += 1;
            status.connection = Some(Connection { session_id: session_id.clone(), pushes });
        });
        client.tell(Observation::Accepted { session_id: session_id.clone(), pushes, at: std::time::Instant::now() });
        tracing::info!(session_id, pushes, "session accepted");
        let said = Said::nothing(&session_id, client.settings.instance_id.to_string());
        let reports = client.settings.reports_readiness;
        Self {
            id: session_id,
            api,
            inbound,
            outbound,
            heartbeat,
            bootstrap: accepted.bootstrap.filter(|_| pushes),
            order: 0,
            calls: JoinSet::new(),
            polling: Polling::of((!pushes).then_some(client.settings.poll_interval)),
            renewal: renewal::due(&client.token),
            proposal: Retry::never(),
            log: Retry::now(),
            exit: Retry::never(),
            over: false,
            readiness: if reports { Retry::now() } else { Retry::never() },
            said,
            saying: false,
        }
    }

    async fn follow(mut self, client: &mut Client, stop: &CancellationToken) -> End {
        if let Some(bootstrap) = self.bootstrap.take()
            && let Err(end) = self.take(client, bootstrap, true).await
        {
            return end;
        }
        let (mut behaviours, mut exits) = (client.behaviour.clone(), client.exit.clone());
        // One that was told of before this session began is new to it.
        exits.mark_changed();
        let mut heartbeat = tokio::time::interval(self.heartbeat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let patience = self.heartbeat * MISSING_HEARTBEATS;
        let mut silent_at = Instant::now() + patience;
        loop {
            let reads = behaviours.borrow_and_update().reads();
            let happened = tokio::select! {
                () = stop.cancelled() => return self.farewell().await,
                message = self.inbound.message(), if reads => {
                    silent_at = Instant::now() + patience;
                    match message {
                        Ok(Some(message)) => self.heard(client, message).await,
                        Ok(None) => Err(End::Broken("the bridge ended the session")),
                        Err(status) => Err(End::Refused(status)),
                    }
                }
                _ = heartbeat.tick() => queue(&self.outbound, ToBridge::Heartbeat(SupervisorHeartbeat {})),
                () = tokio::time::sleep_until(silent_at), if reads => Err(End::Broken("the bridge fell silent")),
                Ok(()) = behaviours.changed() => {
                    silent_at = Instant::now() + patience;
                    Ok(())
                }
                Ok(()) = exits.changed() => {
                    self.exited(*exits.borrow_and_update());
                    Ok(())
                }
                () = self.exit.due() => { self.tell_exit(client); Ok(()) }
                () = self.renewal.due() => { self.renew(client); Ok(()) }
                () = self.proposal.due() => { self.propose_policy(client); Ok(()) }
                () = self.readiness.due() => { self.report_readiness(client); Ok(()) }
                () = self.polling.ask.due() => { self.ask(client); Ok(()) }
                () = self.polling.tell.due() => { self.tell_word(client); Ok(()) }
                () = self.log.due() => { self.push_lines(client); Ok(()) }
                Some(done) = self.calls.join_next() => match done {
                    Ok(done) => { self.called(client, done).await; Ok(()) }
                    // What it was for would be waited for without end.
                    Err(_) => Err(End::Broken("a call of this side failed")),
                },
            };
            if let Err(end) = happened {
                return end;
            }
            if self.over {
                return self.farewell().await;
            }
        }
    }

    /// Ends this side and lets the bridge end the other.
    async fn farewell(self) -> End {
        let Self { mut inbound, outbound, .. } = self;
        drop(outbound);
        let ending = async { while matches!(inbound.message().await, Ok(Some(_))) {} };
        if tokio::time::timeout(FAREWELL, ending).await.is_err() {
            tracing::debug!("the bridge did not end the stream");
        }
        End::Stopped
    }

    async fn heard(&mut self, client: &mut Client, message: GatewayMessage) -> Result<(), End> {
        match message.payload {
            // What a session may send that does not push, nobody would hear the answer to.
            Some(FromBridge::ConfigUpdate(update)) if self.polling.is_off() => self.take(client, update, false).await,
            Some(FromBridge::SessionRejected(rejected)) => Err(End::Refused(Status::aborted(rejected.reason))),
            Some(FromBridge::SessionRedirect(redirect)) => Err(End::Redirected(redirect.peer_endpoint)),
            // Relays are not served by this client; anything else is from a later version.
            _ => Ok(()),
        }
    }

    /// Takes in an update and answers it.
    async fn take(&mut self, client: &mut Client, update: ConfigUpdate, bootstrap: bool) -> Result<(), End> {
        self.order += 1;
        let frame = Frame { bootstrap, ..Frame::of(&update, &self.id, self.order) };
        let Some(ending) = client.take(frame, &update).await else { return Ok(()) };
        if !matches!(ending, Ending::Scripted(_)) {
            self.look_for_policy(client, &update);
        }
        let result = answer(&update, &ending, &client.settings.instance_id.to_string());
        let outcome = result.outcome();
        queue(&self.outbound, ToBridge::ConfigUpdateResult(result))?;
        self.readiness_changed(client);
        client.tell(Observation::Answered {
            session_id: self.id.clone(),
            update_id: update.update_id,
            outcome,
            at: std::time::Instant::now(),
        });
        Ok(())
    }

    fn push_lines(&mut self, client: &Client) {
        self.log.begun();
        let pushing = log::push(self.api.clone(), client.token.clone(), client.lines.clone());
        self.calls.spawn(async { Done::LogEnded(pushing.await) });
    }

    async fn called(&mut self, client: &mut Client, done: Done) {
        match done {
            Done::ExitTold(told) => self.exit_told(told),
            Done::Renewed(renewed) => self.renewed(client, renewed),
            Done::PolicyProposed(proposed) => self.policy_proposed(client, proposed),
            Done::ReadinessHeard(heard) => self.readiness_heard(client, heard),
            Done::Polled(polled) => self.polled(client, *polled).await,
            Done::WordTold(place, told) => self.word_told(place, told),
            // Nobody can put anything there any more.
            Done::LogEnded(Ok(())) => {}
            Done::LogEnded(Err(status)) => {
                tracing::info!(code = ?status.code(), message = status.message(), "lines could not be pushed");
                self.log.failed();
            }
        }
    }
}

fn queue(outbound: &mpsc::Sender<SupervisorMessage>, payload: ToBridge) -> Result<(), End> {
    let message = SupervisorMessage { payload: Some(payload) };
    outbound.try_send(message).map_err(|_| End::Broken("the bridge does not read"))
}
