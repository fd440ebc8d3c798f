//! What each role may say and hear on the broker (D9), and the broker's configuration that says so.
//!
//! Lists allow; everything else is denied, and a denied publish is silence. Nobody but admission may create consumers:
//! a consumer can be told to deliver to any subject, whatever its creator may publish.

mod server;

use roadstead_proto::activity::{self, Kind};
use roadstead_proto::bucket::Bucket;
use roadstead_proto::inbox::Inbox;
use roadstead_proto::role::Role;
use roadstead_proto::stream::{Consumer, Stream};
use roadstead_proto::subject;

use crate::topology::Part;
pub use server::{Auth, limits_and_users, server_config};

/// The subjects of one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub publish: Vec<String>,
    pub subscribe: Vec<String>,
    /// Whether it may answer the requests it receives, once each.
    pub answers_requests: bool,
}

impl Permissions {
    /// What `role` needs, and no more.
    #[must_use]
    pub fn of(role: Role) -> Self {
        let mut rights = Self {
            publish: vec![Inbox::all_barriers(role)],
            subscribe: vec![format!("{}.>", role.inbox_prefix())],
            answers_requests: false,
        };
        match role {
            Role::Edge => rights.edge(),
            Role::Admission => rights.admission(),
            Role::ConfigSnapshot => rights.config_snapshot(),
            Role::Watch => rights.watch(),
            Role::SupervisorBridge => rights.supervisor_bridge(),
            Role::Operator => rights.operator(),
        }
        rights
    }

    fn edge(&mut self) {
        self.publish(["roadstead.command.*", subject::CLOCK]);
        self.asks(["roadstead.read.*", "roadstead.config.user.*"]);
        self.sees(&[Part::Stream(Stream::Commands)]);
        self.reads(&[Bucket::Sandboxes, Bucket::Rights]);
        self.follows([Bucket::Sandboxes.whole_feed(), Bucket::Rights.whole_feed(), activity::WHOLE_FEED.to_owned()]);
        self.sees(&[Part::Stream(Stream::Activity)]);
        let stream = Stream::Activity.config().name;
        self.publish(["STREAM.MSG.GET", "DIRECT.GET"].map(|call| format!("$JS.API.{call}.{stream}")));
    }

    fn admission(&mut self) {
        self.consumes(&[Consumer::Commands, Consumer::Reports]);
        self.publish([Inbox::all_answers(Role::Edge), Inbox::all_answers(Role::SupervisorBridge)]);
        self.publish(["roadstead.change.*.*.*", "roadstead.dirty.*.*.*", subject::RENEW]);
        self.publish([Kind::Event.subjects()]);
        // The topology. Neither deleting nor emptying a stream is part of it.
        self.publish(["$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.INFO.*"]);
        self.publish(["$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.INFO.*.*"]);
        self.serves([subject::RENEW, subject::CLOCK, "roadstead.admin.*"]);
    }

    fn config_snapshot(&mut self) {
        self.consumes(&[Consumer::Expansion, Consumer::DirtyOne, Consumer::DirtyFleet]);
        self.publish(["roadstead.dirty.fleet.*.*"]);
        self.writes(&[Bucket::Snapshots]);
        self.answers(["roadstead.config.user.*", "roadstead.config.sandbox.*"]);
    }

    fn watch(&mut self) {
        self.consumes(&[Consumer::Projection]);
        self.writes(&[Bucket::Sandboxes, Bucket::Rights]);
        self.answers(["roadstead.read.*"]);
    }

    fn supervisor_bridge(&mut self) {
        self.publish(["roadstead.report.*", subject::RENEW, subject::CLOCK]);
        self.asks(["roadstead.config.sandbox.*"]);
        self.publish([Kind::Log.subjects()]);
        self.publish([subject::OBSERVE_ANY, subject::PRESENCE]);
        self.follows([subject::PRESENCE.to_owned()]);
        self.serves([subject::OBSERVE_ANY, subject::REBALANCE]);
        self.sees(&[Part::Stream(Stream::Reports)]);
        self.reads(&[Bucket::Snapshots, Bucket::Sandboxes]);
        self.follows([Bucket::Snapshots.feed("*"), Bucket::Sandboxes.whole_feed()]);
    }

    fn operator(&mut self) {
        self.publish(subject::AdminCall::ALL.iter().map(|call| subject::admin(*call)));
        self.publish([subject::REBALANCE, "$SRV.>"]);
    }

    fn publish<S: Into<String>>(&mut self, subjects: impl IntoIterator<Item = S>) {
        self.publish.extend(subjects.into_iter().map(Into::into));
    }

    fn follows(&mut self, feeds: impl IntoIterator<Item = String>) {
        self.subscribe.extend(feeds);
    }

    /// May learn that the parts exist.
    fn sees(&mut self, parts: &[Part]) {
        self.publish(parts.iter().map(|part| format!("$JS.API.{}", part.info())));
    }

    fn reads(&mut self, buckets: &[Bucket]) {
        for bucket in buckets {
            self.sees(&[Part::Bucket(*bucket)]);
            self.publish([format!("$JS.API.STREAM.MSG.GET.{}", bucket.stream())]);
        }
    }

    fn writes(&mut self, buckets: &[Bucket]) {
        self.reads(buckets);
        self.publish(buckets.iter().map(|bucket| format!("$KV.{}.>", bucket.name())));
    }

    fn consumes(&mut self, consumers: &[Consumer]) {
        for consumer in consumers {
            let config = consumer.config();
            let (stream, name) = (config.stream.config().name, config.name);
            self.sees(&[Part::Stream(config.stream), Part::Consumer(*consumer)]);
            self.publish([
                format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
                // All tokens are counted: with an open end, one form could pass for another consumer's in the other form,
                // and an ack can ask for the next message. Newer brokers may put domain and account before the stream.
                format!("$JS.ACK.{stream}.{name}.*.*.*.*.*"),
                format!("$JS.ACK.*.*.{stream}.{name}.*.*.*.*.*"),
                format!("$JS.ACK.*.*.{stream}.{name}.*.*.*.*.*.*"),
            ]);
        }
    }

    /// May put questions to one replica and to all.
    fn asks<'a>(&mut self, subjects: impl IntoIterator<Item = &'a str>) {
        self.publish(subjects.into_iter().flat_map(one_and_all));
    }

    /// Answers such questions.
    fn answers<'a>(&mut self, subjects: impl IntoIterator<Item = &'a str>) {
        self.subscribe.extend(subjects.into_iter().flat_map(one_and_all));
        self.serves([]);
    }

    /// Receives requests and answers them, and shows itself to operators as a micro service.
    fn serves<'a>(&mut self, subjects: impl IntoIterator<Item = &'a str>) {
        self.subscribe.extend(subjects.into_iter().map(str::to_owned));
        self.subscribe.push("$SRV.>".to_owned());
        self.answers_requests = true;
    }
}

fn one_and_all(subject: &str) -> [String; 2] {
    [subject.to_owned(), subject::to_all(subject)]
}
