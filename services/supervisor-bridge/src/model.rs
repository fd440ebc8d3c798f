//! Model test from the entry that stands to what a supervisor holds, and to what admission hears of it. A database changes
//! and is restored; the bucket is wiped and rolled back; feeds lose what they tell; bootstraps and reads take their time;
//! the supervisor applies, refuses, is silent, loses its connection, and starts anew, while a bridge still believes in the
//! session before. Whatever happens: what takes effect never goes back, what is refused for good is not sent again, and in
//! the end the supervisor holds what the database says, and admission knows.

mod act;
mod session;
mod store;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use roadstead_proto::api::v1::{ConfigApplyOutcome, ConfigUpdate};
use roadstead_proto::internal::SnapshotEntry;
use roadstead_supervisor::{Answer, Judge};
use uuid::Uuid;

use self::act::{Act, Mood, Of, Which, any_act};
use self::session::Session;
use self::store::{Config, Content, Store, environment_digest};
use crate::report::{Report, Told};

/// The sandbox's row, as far as results concern it.
#[derive(Default)]
struct Row {
    session: Uuid,
    number: u64,
    installed: [Vec<u8>; 2],
}

/// The supervisor: what is in effect, and the place in history that it can be of.
#[derive(Default)]
struct Supervisor {
    judge: Judge,
    config: Option<Config>,
    environment: Option<u8>,
    config_at: usize,
    environment_at: usize,
    /// What it refused for good in this session.
    refused_configs: Vec<Config>,
    refused_environments: Vec<u8>,
}

struct World {
    now: Instant,
    store: Store,
    sessions: u128,
    present: Session,
    former: Option<Session>,
    row: Row,
    supervisor: Supervisor,
    mood: Mood,
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut world = Self {
            now,
            store: Store::new(),
            sessions: 0,
            present: Session::begin(0, now),
            former: None,
            row: Row::default(),
            supervisor: Supervisor::default(),
            mood: Mood::Applies,
        };
        world.reconnect();
        world
    }

    fn act(&mut self, act: Act) {
        let Content { config, environment } = self.store.content();
        match act {
            Act::Policy => {
                let config = Config { version: config.version.wrapping_add(1), ..config };
                self.store.commit(Content { config, environment });
            }
            Act::Other(other, admitted) => {
                self.store.commit(Content { config: Config { other, admitted, ..config }, environment });
            }
            Act::Environment(environment) => self.store.commit(Content { config, environment }),
            Act::BackUp => self.store.back_up(),
            Act::Restore => self.store.restore(),
            Act::Build => {
                let told = self.store.build(0).1;
                self.feed(told);
            }
            Act::Save => self.store.save(),
            Act::Wipe => self.store.wipe(),
            Act::RollBack => self.store.roll_back(),
            Act::Sweep => self.sweep(),
            Act::Of(which, of) => self.of(which, of),
            Act::Pass(milliseconds) => self.now += Duration::from_millis(milliseconds),
            Act::Take => self.take(),
            Act::Becomes(mood) => self.mood = mood,
            Act::Reconnect => self.reconnect(),
            Act::StartAnew => {
                self.supervisor = Supervisor::default();
                self.reconnect();
            }
        }
    }

    fn sweep(&mut self) {
        let told = self.store.sweep();
        self.feed(told);
    }

    fn feed(&mut self, told: Option<SnapshotEntry>) {
        for session in self.former.iter_mut().chain([&mut self.present]) {
            session.feed.extend(told.clone());
        }
    }

    /// Another session takes over. What was under way to and from the supervisor is lost; the bridge before does not know.
    fn reconnect(&mut self) {
        self.sessions += 1;
        let mut former = std::mem::replace(&mut self.present, Session::begin(self.sessions, self.now));
        former.to_supervisor.clear();
        self.former = Some(former);
        self.row = Row { session: self.present.id, ..Row::default() };
        self.supervisor.begin_session();
    }

    fn of(&mut self, which: Which, of: Of) {
        let now = self.now;
        let session = match which {
            Which::Present => Some(&mut self.present),
            Which::Former => self.former.as_mut(),
        };
        let Some(session) = session else { return };
        match of {
            Of::Bootstrap if session.wants_first() => {
                let (entry, told) = self.store.build(0);
                session.bootstrap(entry);
                self.feed(told);
            }
            Of::Bootstrap => {}
            Of::BootstrapArrives => session.bootstrap_arrives(now),
            Of::Read => session.reads(self.store.standing(), now),
            Of::ReadArrives => session.read_arrives(now),
            Of::Feed => session.hears_feed(now),
            Of::Lose => {
                session.feed.pop_front();
            }
            Of::Gap => session.reread_at = now,
            Of::Send if which == Which::Present => {
                session.takes(now);
            }
            Of::Send => {}
            Of::Answer => session.hears_answer(now),
            Of::Report => session.reports(now),
            Of::Admission { told } => {
                let heard = session.report().map(|report| self.row.hear(session.id, report));
                session.told(heard.filter(|_| told).unwrap_or(Told::Again), now);
            }
        }
    }

    fn take(&mut self) {
        let Some(update) = self.present.to_supervisor.pop_front() else { return };
        let script = match self.mood {
            Mood::Silent => return,
            Mood::Applies | Mood::Mute => None,
            Mood::Refuses { retryable } => Some(Answer { retryable, ..Answer::refusal("no") }),
        };
        let for_good = script.as_ref().is_some_and(|script| !script.retryable);
        let judged = self.supervisor.judge.take(&update, script);
        if for_good {
            self.supervisor.refuses(&update);
        }
        if judged.installed {
            self.supervisor.has(&update, &self.store.history);
        }
        if judged.closed {
            self.supervisor.config = None;
        }
        assert_ne!(judged.answer.outcome(), ConfigApplyOutcome::Unspecified);
        if self.mood != Mood::Mute {
            self.present.from_supervisor.push_back(judged.answer);
        }
    }

    /// Everything is well from now on, and time passes.
    fn settle(&mut self) {
        self.mood = Mood::Applies;
        self.sweep();
        self.go_on(60);
    }

    fn go_on(&mut self, turns: usize) {
        use Of::{Admission, Answer, Bootstrap, BootstrapArrives, Feed, Read, ReadArrives, Report, Send};
        for _ in 0..turns {
            while !self.present.feed.is_empty() {
                self.of(Which::Present, Feed);
            }
            for of in [Bootstrap, BootstrapArrives, ReadArrives, Read, ReadArrives] {
                self.of(Which::Present, of);
            }
            // More than it takes: who is sent the same again and again is found out.
            for _ in 0..20 {
                self.of(Which::Present, Send);
                self.take();
                self.of(Which::Present, Answer);
                if self.present.is_quiet() {
                    break;
                }
            }
            for of in [Admission { told: true }, Report, Admission { told: true }] {
                self.of(Which::Present, of);
            }
            self.now = self.now.max(self.present.due());
        }
    }

    fn assert_all_is_right(&self) {
        let Content { config, environment } = self.store.content();
        let supervisor = &self.supervisor;
        assert!(self.present.has_nothing_to_send());
        let refuses = supervisor.refused_configs.contains(&config);
        if !refuses {
            let expected = Some(config).filter(|config| config.admitted);
            assert_eq!(supervisor.config, expected, "the configuration in effect");
            if config.admitted {
                assert_eq!(self.row.installed[0], config.digest(), "what admission knows of the configuration");
            }
        }
        // What comes with a configuration that is not admitted is not taken either.
        if !supervisor.refused_environments.contains(&environment) && config.admitted {
            assert_eq!(supervisor.environment, Some(environment), "the environment in effect");
            assert_eq!(self.row.installed[1], environment_digest(environment), "what admission knows of it");
        }
    }

    /// A last change is refused for good: nothing is sent for an hour after.
    fn assert_a_refusal_is_respected(&mut self) {
        self.mood = Mood::Refuses { retryable: false };
        self.act(Act::Policy);
        self.act(Act::Environment(7));
        self.act(Act::Build);
        self.go_on(4);
        let (sent, until) = (self.present.sent, self.now + Duration::from_secs(3600));
        while self.now < until {
            self.go_on(1);
        }
        assert_eq!(self.present.sent, sent, "what was refused for good was sent again");
    }
}

impl Supervisor {
    fn begin_session(&mut self) {
        self.judge.begin_session();
        self.refused_configs.clear();
        self.refused_environments.clear();
    }

    fn refuses(&mut self, update: &ConfigUpdate) {
        self.refused_configs.extend(update.sandbox_config.as_ref().map(Config::read));
        self.refused_environments.extend(environment(update));
    }

    /// This is in effect now: something that there was, and not before what was in effect.
    fn has(&mut self, update: &ConfigUpdate, history: &[Content]) {
        if let Some(config) = update.sandbox_config.as_ref().map(Config::read) {
            let later = history[self.config_at..].iter().position(|content| content.config == config);
            self.config_at += later.unwrap_or_else(|| panic!("{config:?} is from before {:?}", self.config));
            self.config = Some(config);
        }
        if let Some(environment) = environment(update) {
            let later = history[self.environment_at..].iter().position(|content| content.environment == environment);
            self.environment_at += later.unwrap_or_else(|| panic!("{environment} is from before"));
            self.environment = Some(environment);
        }
    }
}

fn environment(update: &ConfigUpdate) -> Option<u8> {
    update.provider_environment.as_ref().map(|environment| environment.provider_env_revision as u8)
}

impl Row {
    fn hear(&mut self, session: Uuid, report: &Report) -> Told {
        let Report::Result(result) = report else { return Told::Recorded };
        if session != self.session {
            return Told::NotTheSession;
        }
        if result.number > self.number {
            self.number = result.number;
            let installed = |half: &Option<roadstead_proto::internal::HalfResult>| {
                half.as_ref().map(|half| half.installed.to_vec()).unwrap_or_default()
            };
            self.installed = [installed(&result.config), installed(&result.environment)];
        }
        Told::Recorded
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128 * roadstead_testkit::soak::factor(), ..Default::default() })]

    #[test]
    fn whatever_is_lost_late_refused_or_silent_nothing_goes_back_and_a_supervisor_ends_with_what_the_database_says(
        acts in proptest::collection::vec(any_act(), 1..300),
    ) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
        }
        world.settle();
        world.assert_all_is_right();
        world.assert_a_refusal_is_respected();
    }
}
