//! One session with a bridge, from connecting to its end.

use std::fmt;
use std::time::{Duration, SystemTime};

use rand::Rng as _;
use roadstead_proto::api::sandbox::PolicySource;
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
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::apply::StoreError;
use crate::behaviour::Decision;
use crate::calls;
use crate::client::{Client, Connection};
use crate::log;
use crate::observed::{ConfigSeen, EnvironmentSeen, Frame, Observation};
use crate::readiness::Said;
use crate::token::Token;
use crate::verdict::{Ending, Plan, answer, plan};
use crate::{applied::Judgement, backoff::Backoff};

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
/// A timer for what is never due.
const FAR: Duration = Duration::from_secs(24 * 3600);
/// Between reports of readiness, when the bridge does not say how often.
const REPORT: Duration = Duration::from_secs(5);
/// Pauses between attempts to refresh the token or to propose a policy.
const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(60), steady: Duration::ZERO };

/// Why a session, or an attempt to have one, ended.
#[derive(Debug)]
pub(crate) enum End {
    /// This side was asked to stop.
    Stopped,
    /// The bridge, or the way to it, said so.
    Refused(Status),
    /// The bridge cannot be reached.
    Unreachable(tonic::transport::Error),
    /// The bridge hands the sandbox over to the one at this address.
    Redirected(String),
    /// The bridge did something that the protocol does not allow, or did not do what it demands.
    Broken(&'static str),
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => formatter.write_str("stopped"),
            Self::Refused(status) => write!(formatter, "{:?}: {}", status.code(), status.message()),
            Self::Unreachable(error) => write!(formatter, "the bridge cannot be reached: {error}"),
            Self::Redirected(address) => write!(formatter, "redirected to {address}"),
            Self::Broken(what) => formatter.write_str(what),
        }
    }
}

impl End {
    /// Whether there is nothing more to say, or nobody to say it to.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Stopped => true,
            Self::Refused(status) => status.code() == Code::FailedPrecondition,
            Self::Unreachable(_) | Self::Redirected(_) | Self::Broken(_) => false,
        }
    }
}

/// What a call beside the stream came to.
enum Done {
    ExitTold(Result<(), Status>),
    Refreshed(Result<Token, Status>),
    PolicySynced(Result<u32, Status>),
    LogEnded(Result<(), Status>),
    Observed(Result<Option<Duration>, Status>),
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
    api: OpenShellClient<Channel>,
    inbound: Streaming<GatewayMessage>,
    outbound: mpsc::Sender<SupervisorMessage>,
    heartbeat: Duration,
    bootstrap: Option<ConfigUpdate>,
    /// Updates so far.
    order: u64,
    calls: JoinSet<Done>,
    refresh: Retry,
    sync: Retry,
    log: Retry,
    exit: Retry,
    /// The end of the main process was told.
    over: bool,
    said: Said,
    report: Retry,
    /// Whether a report of readiness is on its way.
    reporting: bool,
}

/// When something is tried, and tried again.
struct Retry {
    at: Option<Instant>,
    failures: u32,
}

impl Retry {
    fn failed(&mut self) {
        self.at = Some(Instant::now() + RETRY.pause(self.failures, rand::rng().random()));
        self.failures = self.failures.saturating_add(1);
    }

    fn until(&self) -> Instant {
        self.at.unwrap_or_else(|| Instant::now() + FAR)
    }
}

async fn open(client: &mut Client, endpoint: &Endpoint, redirected: bool) -> Result<Session, End> {
    let channel = endpoint.connect().await.map_err(End::Unreachable)?;
    let mut api = OpenShellClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
    // Someone may have put a fresh token there; and one that has run out is good for one thing still.
    if let Ok(token) = client.settings.token.load() {
        client.token = token;
    }
    if client.token.refresh_at().is_some_and(|at| at <= now()) {
        match calls::refresh(api.clone(), client.token.clone()).await {
            Ok(token) => client.keep(token),
            Err(status) => tracing::warn!(code = ?status.code(), "the token could not be refreshed"),
        }
    }

    let (outbound, messages) = mpsc::channel(OUTBOUND);
    client.connection_epoch += 1;
    let hello = SupervisorHello {
        sandbox_id: client.token.sandbox_id().to_string(),
        instance_id: client.settings.instance_id.to_string(),
        connection_epoch: client.connection_epoch,
        supports_config_push: true,
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
        api: OpenShellClient<Channel>,
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
        Self {
            id: session_id,
            api,
            inbound,
            outbound,
            heartbeat,
            bootstrap: accepted.bootstrap,
            order: 0,
            calls: JoinSet::new(),
            refresh: Retry { at: refresh_due(&client.token), failures: 0 },
            sync: Retry { at: None, failures: 0 },
            log: Retry { at: Some(Instant::now()), failures: 0 },
            exit: Retry { at: None, failures: 0 },
            over: false,
            said,
            report: Retry { at: client.settings.reports_readiness.then(Instant::now), failures: 0 },
            reporting: false,
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
                () = tokio::time::sleep_until(self.refresh.until()), if self.refresh.at.is_some() => {
                    self.refresh.at = None;
                    let call = calls::refresh(self.api.clone(), client.token.clone());
                    self.calls.spawn(async { Done::Refreshed(call.await) });
                    Ok(())
                }
                Ok(()) = exits.changed() => {
                    self.exit.at = exits.borrow_and_update().map(|_| Instant::now());
                    Ok(())
                }
                () = tokio::time::sleep_until(self.exit.until()), if self.exit.at.is_some() => {
                    self.exit.at = None;
                    self.tell_exit(client);
                    Ok(())
                }
                () = tokio::time::sleep_until(self.sync.until()), if self.sync.at.is_some() => {
                    self.sync.at = None;
                    self.propose_policy(client);
                    Ok(())
                }
                () = tokio::time::sleep_until(self.report.until()), if self.report.at.is_some() => {
                    self.report_readiness(client);
                    Ok(())
                }
                () = tokio::time::sleep_until(self.log.until()), if self.log.at.is_some() => {
                    self.log.at = None;
                    let pushing = log::push(self.api.clone(), client.token.clone(), client.lines.clone());
                    self.calls.spawn(async { Done::LogEnded(pushing.await) });
                    Ok(())
                }
                Some(done) = self.calls.join_next() => {
                    if let Ok(done) = done {
                        self.called(client, done);
                    }
                    Ok(())
                }
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
            Some(FromBridge::ConfigUpdate(update)) => self.take(client, update, false).await,
            Some(FromBridge::SessionRejected(rejected)) => Err(End::Refused(Status::aborted(rejected.reason))),
            Some(FromBridge::SessionRedirect(redirect)) => Err(End::Redirected(redirect.peer_endpoint)),
            // Relays are not served by this client; anything else is from a later version.
            _ => Ok(()),
        }
    }

    /// Takes in an update and answers it.
    async fn take(&mut self, client: &mut Client, update: ConfigUpdate, bootstrap: bool) -> Result<(), End> {
        self.order += 1;
        let frame = Frame::of(&update, &self.id, self.order, bootstrap);
        client.tell(Observation::Received(Box::new(frame.clone())));
        let decision = client.behaviour.borrow().decide(&frame);
        let ending = match decision {
            Decision::Silent => return Ok(()),
            Decision::Answer(answer) => Ending::Scripted(answer),
            Decision::Apply => {
                let lacks_policy = update.sandbox_config.as_ref().map(|config| {
                    config.policy.is_none() && config.version == 0 && config.policy_source() != PolicySource::Global
                });
                if let Some(lacks_policy) = lacks_policy.filter(|_| client.settings.policy.is_some()) {
                    self.sync = Retry { at: lacks_policy.then(Instant::now), failures: 0 };
                }
                client.apply(&update).await
            }
        };
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

    /// Says what is in effect; the next time when that was heard.
    fn report_readiness(&mut self, client: &Client) {
        let status = client.status.borrow();
        // Nothing yet: the first update brings it.
        self.report.at = None;
        if let Some(observation) = self.said.next(status.config.as_ref(), status.environment.as_ref()) {
            let call = calls::report_readiness(self.api.clone(), client.token.clone(), observation);
            self.reporting = true;
            self.calls.spawn(async { Done::Observed(call.await) });
        }
    }

    /// Says it at once if something else is in effect than was said.
    fn readiness_changed(&mut self, client: &Client) {
        let status = client.status.borrow();
        let current = self.said.is_current(status.config.as_ref(), status.environment.as_ref());
        if client.settings.reports_readiness && !self.reporting && !current {
            self.report.at = Some(Instant::now());
        }
    }

    fn propose_policy(&mut self, client: &Client) {
        let Some(policy) = client.settings.policy.clone() else { return };
        let call = calls::propose_policy(self.api.clone(), client.token.clone(), &client.settings, policy);
        self.calls.spawn(async { Done::PolicySynced(call.await) });
    }

    fn tell_exit(&mut self, client: &Client) {
        let Some(code) = *client.exit.borrow() else { return };
        let call = calls::tell_exit(self.api.clone(), client.token.clone(), client.settings.instance_id, code);
        self.calls.spawn(async { Done::ExitTold(call.await) });
    }

    fn called(&mut self, client: &mut Client, done: Done) {
        let at = std::time::Instant::now();
        match done {
            Done::Refreshed(Ok(token)) => {
                client.keep(token);
                self.refresh = Retry { at: refresh_due(&client.token), failures: 0 };
                client.tell(Observation::TokenRefreshed { at });
            }
            Done::Refreshed(Err(status)) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the token could not be refreshed");
                self.refresh.failed();
            }
            Done::PolicySynced(Ok(version)) => client.tell(Observation::PolicySynced { version, at }),
            // Somebody gave it one meanwhile, or nobody may any more: the next update will tell.
            Done::PolicySynced(Err(status)) if matches!(status.code(), Code::FailedPrecondition | Code::Aborted) => {
                tracing::info!(message = status.message(), "the default policy is not wanted");
            }
            Done::PolicySynced(Err(status)) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the policy could not be proposed");
                self.sync.failed();
            }
            Done::ExitTold(Ok(())) => self.over = true,
            Done::ExitTold(Err(status)) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the exit could not be reported");
                self.exit.failed();
            }
            Done::Observed(heard) => {
                self.reporting = false;
                match heard {
                    Ok(interval) => {
                        self.report = Retry { at: Some(Instant::now() + interval.unwrap_or(REPORT)), failures: 0 };
                    }
                    // This bridge does not take it: no repeats, only what is new after the next update.
                    Err(status) if status.code() == Code::Unimplemented => self.report.at = None,
                    Err(status) => {
                        tracing::warn!(code = ?status.code(), message = status.message(), "readiness was not taken");
                        self.report.failed();
                    }
                }
                if self.report.at.is_some() {
                    self.readiness_changed(client);
                }
            }
            // Nobody can put anything there any more.
            Done::LogEnded(Ok(())) => {}
            Done::LogEnded(Err(status)) => {
                tracing::info!(code = ?status.code(), message = status.message(), "lines could not be pushed");
                self.log.failed();
            }
        }
    }
}

impl Client {
    /// Puts an update into effect.
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

    fn keep(&mut self, token: Token) {
        if let Err(error) = self.settings.token.keep(&token) {
            tracing::warn!(%error, "the refreshed token is kept in memory only");
        }
        self.token = token;
    }
}

fn queue(outbound: &mpsc::Sender<SupervisorMessage>, payload: ToBridge) -> Result<(), End> {
    let message = SupervisorMessage { payload: Some(payload) };
    outbound.try_send(message).map_err(|_| End::Broken("the bridge does not read"))
}

/// When the token is to be refreshed.
fn refresh_due(token: &Token) -> Option<Instant> {
    let at = token.refresh_at()?;
    Some(Instant::now() + at.duration_since(now()).unwrap_or_default().min(FAR))
}

#[allow(clippy::disallowed_methods, reason = "a token's times are those of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}
