use futures_util::{FutureExt as _, StreamExt as _};
use prometheus_client::registry::Registry;
use prost::Message as _;
use roadstead_proto::api::v1::GatewayMessage;
use roadstead_proto::api::v1::gateway_message::Payload;
use roadstead_proto::internal::SandboxIdentity;
use roadstead_proto::sealing::{CipherKeys, SecretKey};

use super::*;
use crate::metrics::Metrics;
use crate::outbox::{Messages, Outbox};
use crate::over::Known;
use crate::reporter::Reporter;

const SANDBOX: Uuid = Uuid::from_u128(1);
const SECOND: Duration = Duration::from_secs(1);

/// A session that follows redirects and is not pushed to, and what its supervisor is sent.
struct Session {
    sessions: Arc<Sessions>,
    outbox: Arc<Outbox>,
    messages: Messages,
    _place: Place,
}

impl Session {
    fn enter(redirected: bool, token_expires: SystemTime) -> Self {
        let keys = CipherKeys::new(("k".to_owned(), SecretKey::from_bytes([7; 32])), []);
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let reporter = Reporter::new(Uuid::from_u128(2), &SandboxIdentity::default());
        let outbox = Outbox::new(reporter.session_id(), SANDBOX, false, SECOND, Arc::new(keys), metrics);
        let sessions = Arc::<Sessions>::default();
        let _place = sessions.enter(Entering {
            sandbox_id: SANDBOX,
            generation: 1,
            token_expires,
            redirected,
            readiness_announced: false,
            movable_at: Some(Instant::now()),
            known: Known::registered(1),
            outbox: &outbox,
            reporter: &reporter,
        });
        let messages = outbox.messages();
        Self { sessions, outbox, messages, _place }
    }

    /// Sessions older than their tokens are looked for.
    fn look(&self, now: SystemTime) {
        self.sessions.ask_over_age(now, &Arc::default());
    }

    /// What the transport takes now.
    fn sent(&mut self) -> Vec<Payload> {
        let next = || self.messages.next().now_or_never().flatten();
        let sent = std::iter::from_fn(next).map(|message| GatewayMessage::decode(message.unwrap()).unwrap());
        sent.filter_map(|message| message.payload).collect()
    }

    /// How often it is asked when sessions are looked for.
    fn asked(&mut self, now: SystemTime) -> usize {
        self.look(now);
        let sent = self.sent();
        sent.iter().filter(|payload| matches!(payload, Payload::SessionRedirect(_))).count()
    }
}

#[test]
fn a_session_is_asked_once_about_each_token_but_not_about_the_one_that_it_was_sent_here_with() {
    let expires = SystemTime::now();
    for redirected in [false, true] {
        let mut session = Session::enter(redirected, expires);
        session.outbox.accept();
        // Time for it to refresh its token by itself.
        assert_eq!(session.asked(expires + 29 * SECOND), 0);
        assert_eq!(session.asked(expires + 59 * SECOND), usize::from(!redirected), "{redirected}");
        assert_eq!(session.asked(expires + 59 * SECOND), 0);
        session.sessions.token_refreshed(SANDBOX, expires + 900 * SECOND);
        assert_eq!(session.asked(expires + 60 * SECOND), 0);
        assert_eq!(session.asked(expires + 959 * SECOND), 1);
    }
}

#[test]
fn who_is_asked_before_it_is_accepted_hears_of_it_after() {
    let expires = SystemTime::now();
    let mut session = Session::enter(false, expires);
    session.look(expires + 59 * SECOND);
    assert_eq!(session.sent(), []);
    session.outbox.accept();
    assert!(matches!(session.sent()[..], [Payload::SessionAccepted(_), Payload::SessionRedirect(_)]));
}

#[test]
fn sessions_are_not_all_asked_in_one_instant() {
    let expires = SystemTime::now();
    let mut sessions: Vec<_> = (0..100).map(|_| Session::enter(false, expires)).collect();
    sessions.iter().for_each(|session| session.outbox.accept());
    let asked: Vec<usize> = (30..=45)
        .map(|second| sessions.iter_mut().map(|session| session.asked(expires + second * SECOND)).sum())
        .collect();
    assert_eq!(asked.iter().sum::<usize>(), 100, "with a quarter of the leeway left: {asked:?}");
    assert!(asked.iter().all(|asked| *asked < 50), "{asked:?}");
}
