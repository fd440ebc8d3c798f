//! Asking again whether those who watch still may. Streams of one caller in one workspace share a question that was not
//! sent yet, never one that was: its answer may be older than their doubt.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use roadstead_bus::Bus;
use roadstead_door::Call;
use roadstead_door::deadline::Deadline;
use roadstead_door::status::unavailable;
use roadstead_proto::api::datamodel::WorkspaceSelector;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::{Code, Status};
use uuid::Uuid;

use crate::read;

/// Questions on their way at the same time.
const SLOTS: usize = 64;
/// Pause after a question that nobody could answer.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a question waits for the answer to the one before it about the same caller.
const TURN: Duration = Duration::from_millis(500);
/// Every caller is asked for that often, whatever the feed of rights says: whoever feeds it may be unable to.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long such a look may take.
const LOOK_BOUND: Duration = Duration::from_secs(60);

/// A caller in a workspace.
type Who = (Uuid, String);
type Answer = Result<(), Status>;
type Question = Shared<BoxFuture<'static, Answer>>;
type WeakQuestion = WeakShared<BoxFuture<'static, Answer>>;

/// The questions of all streams. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Questions {
    began: Instant,
    slots: Arc<Semaphore>,
    asked: Arc<Mutex<Asked>>,
}

#[derive(Debug, Default)]
struct Asked {
    last: u64,
    of: HashMap<Who, Numbered>,
}

/// The questions about one caller, with their numbers.
#[derive(Debug, Default)]
struct Numbered {
    waiting: Option<(u64, WeakQuestion)>,
    sent: Option<(u64, WeakQuestion)>,
}

/// A question's place among those about its caller, until it was answered or nobody waits for it.
struct Place {
    asked: Arc<Mutex<Asked>>,
    who: Who,
    number: u64,
}

/// A member of a workspace who watches one of its sandboxes.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) questions: Questions,
    pub(crate) bus: Bus,
    pub(crate) call: Call,
    pub(crate) scope: Option<WorkspaceSelector>,
    pub(crate) sandbox: String,
    pub(crate) who: Who,
}

impl Member {
    /// Whether the caller may watch on, which has to be known by then. Whether the name still denotes the same sandbox
    /// does not matter here.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED` or `UNAUTHENTICATED` if not; `UNAVAILABLE` if nobody could tell until then.
    pub(crate) async fn authorize(&self, by: Instant) -> Answer {
        self.questions.settle(&self.who, by, || self.ask(by)).await
    }

    /// Looks from time to time, until the caller may not watch on; why not.
    pub(crate) async fn lapses(&self) -> Status {
        self.questions.look(&self.who, |by| self.ask(by)).await
    }

    /// Asks once.
    fn ask(&self, by: Instant) -> impl Future<Output = Answer> + Send + use<> {
        let (bus, mut call) = (self.bus.clone(), self.call.clone());
        let (scope, sandbox) = (self.scope.clone(), self.sandbox.clone());
        call.deadline = Deadline::after(by.saturating_duration_since(Instant::now()));
        async move { read::sandbox_id(&bus, &call, scope, sandbox).await.map(|_id| ()) }
    }
}

impl Questions {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), slots: Arc::new(Semaphore::new(SLOTS)), asked: Arc::default() }
    }

    /// Asks until there is an answer, but not beyond that moment.
    async fn settle<F>(&self, who: &Who, by: Instant, ask: impl Fn() -> F) -> Answer
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let settling = async {
            loop {
                match self.join(who, &ask).await {
                    Ok(()) => return Ok(()),
                    Err(status) if status.code() == Code::NotFound => return Ok(()),
                    Err(status) if is_refusal(&status) => return Err(status),
                    // Too much to do, or an outage: it may pass in time.
                    Err(status) => tracing::debug!(%status, "whether a caller may watch on is asked again"),
                }
                sleep(PAUSE).await;
            }
        };
        timeout_at(by, settling)
            .await
            .unwrap_or_else(|_| Err(unavailable("whether you may watch on cannot be told now; connect again")))
    }

    /// Asks from time to time, until it is refused or nobody can tell; that.
    async fn look<F>(&self, who: &Who, ask: impl Fn(Instant) -> F) -> Status
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        loop {
            sleep_until(self.next_look(who, Instant::now())).await;
            let by = Instant::now() + LOOK_BOUND;
            if let Err(status) = self.settle(who, by, || ask(by)).await {
                return status;
            }
        }
    }

    /// The question about this caller that was not sent yet, or a new one.
    fn join<F>(&self, who: &Who, ask: impl Fn() -> F) -> Question
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut asked = lock(&self.asked);
        let before = asked.of.get(who);
        if let Some(waiting) = before.and_then(|of| of.waiting.as_ref()?.1.upgrade()) {
            return waiting;
        }
        let sent = before.and_then(|of| of.sent.as_ref()?.1.upgrade());
        asked.last += 1;
        let place = Place { asked: Arc::clone(&self.asked), who: who.clone(), number: asked.last };
        let (slots, question) = (Arc::clone(&self.slots), ask());
        let question = async move {
            if let Some(sent) = sent {
                let _whatever_it_was = timeout(TURN, sent).await;
            }
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            place.is_sent();
            question.await
        };
        let question = question.boxed().shared();
        let number = asked.last;
        asked.of.entry(who.clone()).or_default().waiting = question.downgrade().map(|weak| (number, weak));
        question
    }

    /// The same moment for all streams of a caller in a workspace, and spread over all of them.
    fn next_look(&self, who: &Who, now: Instant) -> Instant {
        let mut hasher = DefaultHasher::new();
        who.hash(&mut hasher);
        let phase = Duration::from_millis(hasher.finish() % (LOOK_EVERY.as_secs() * 1000));
        let mut next = self.began + phase;
        let past = now.saturating_duration_since(next).as_secs() / LOOK_EVERY.as_secs();
        next += LOOK_EVERY * u32::try_from(past).unwrap_or(u32::MAX);
        if next > now { next } else { next + LOOK_EVERY }
    }
}

impl Place {
    fn is_sent(&self) {
        if let Some(of) = lock(&self.asked).of.get_mut(&self.who)
            && let Some(waiting) = of.waiting.take_if(|(number, _)| *number == self.number)
        {
            of.sent = Some(waiting);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut asked = lock(&self.asked);
        if let Some(of) = asked.of.get_mut(&self.who) {
            of.waiting.take_if(|(number, _)| *number == self.number);
            of.sent.take_if(|(number, _)| *number == self.number);
            if of.waiting.is_none() && of.sent.is_none() {
                asked.of.remove(&self.who);
            }
        }
    }
}

/// Whether a right was refused, rather than not known.
pub(super) fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated)
}

fn lock(asked: &Mutex<Asked>) -> MutexGuard<'_, Asked> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn who(subject: &str) -> Who {
        (Uuid::nil(), subject.to_owned())
    }

    /// The answers in turn, the last for ever; each takes a tenth of a second.
    fn answers(of: &'static [Code], asked: &Arc<AtomicUsize>) -> impl Fn() -> BoxFuture<'static, Answer> + use<> {
        let asked = Arc::clone(asked);
        move || {
            let asked = Arc::clone(&asked);
            let answer = async move {
                let turn = asked.fetch_add(1, Ordering::Relaxed);
                sleep(SECOND / 10).await;
                match of[turn.min(of.len() - 1)] {
                    Code::Ok => Ok(()),
                    code => Err(Status::new(code, "as the test says")),
                }
            };
            answer.boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_be_told_about_is_asked_for_again_until_it_is_too_late() {
        let cases: [(&[Code], _, _); 5] = [
            (&[Code::ResourceExhausted, Code::Unavailable, Code::Internal, Code::DeadlineExceeded, Code::Ok], None, 5),
            (&[Code::Unavailable, Code::NotFound], None, 2),
            (&[Code::Unavailable, Code::PermissionDenied], Some(Code::PermissionDenied), 2),
            (&[Code::Unauthenticated], Some(Code::Unauthenticated), 1),
            (&[Code::ResourceExhausted], Some(Code::Unavailable), 17),
        ];
        for (said, expected, times) in cases {
            let (questions, asked) = (Questions::new(), Arc::default());
            let began = Instant::now();
            let settled = questions.settle(&who("alice"), began + 5 * SECOND, answers(said, &asked)).await;
            assert_eq!(settled.err().map(|status| status.code()), expected, "{said:?}");
            assert_eq!(asked.load(Ordering::Relaxed), times, "{said:?}");
            assert!(began.elapsed() <= 5 * SECOND + SECOND / 100);
            assert!(lock(&questions.asked).of.is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_of_one_caller_share_what_was_not_sent_yet_and_others_do_not() {
        let (questions, asked) = (Questions::new(), Arc::default());
        let ask = answers(&[Code::Ok], &asked);
        let by = Instant::now() + 5 * SECOND;
        let (alice, bob) = (who("alice"), who("bob"));
        let doubts = (0..100).flat_map(|_| [&alice, &bob]).map(|who| questions.settle(who, by, &ask));
        assert!(join_all(doubts).await.iter().all(Result::is_ok));
        assert_eq!(asked.load(Ordering::Relaxed), 4, "one that was sent, and one for all who came later");
        assert!(lock(&questions.asked).of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_holds_up_nobody_for_long() {
        let questions = Questions::new();
        let (alice, began) = (who("alice"), Instant::now());
        let stuck = questions.settle(&alice, began + 5 * SECOND, std::future::pending::<Answer>);
        let next = async {
            sleep(SECOND / 10).await;
            questions.settle(&alice, began + 5 * SECOND, || std::future::ready(Ok(()))).await.unwrap();
            assert!(began.elapsed() < SECOND);
        };
        let (stuck, ()) = tokio::join!(stuck, next);
        assert_eq!(stuck.unwrap_err().code(), Code::Unavailable);
        assert!(lock(&questions.asked).of.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn whom_the_feed_forgets_is_found_out_within_a_minute_and_an_outage_within_two() {
        let cases: [(&[Code], _, _); 2] = [
            (&[Code::Ok, Code::Unavailable, Code::Ok, Code::PermissionDenied], Code::PermissionDenied, 3),
            (&[Code::Ok, Code::Unavailable], Code::Unavailable, 3),
        ];
        for (said, expected, minutes) in cases {
            let questions = Questions::new();
            let ask = answers(said, &Arc::default());
            let status = questions.look(&who("alice"), |_by| ask()).await;
            assert_eq!(status.code(), expected);
            let first = questions.next_look(&who("alice"), questions.began);
            let took = Instant::now() - first;
            let bound = LOOK_EVERY * (minutes - 1);
            assert!(took >= bound && took < bound + SECOND, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_come_once_a_minute_at_a_moment_of_the_callers_own() {
        let questions = Questions::new();
        let mut phases = std::collections::BTreeSet::new();
        for number in 0..100 {
            let who = who(&format!("member-{number}"));
            let first = questions.next_look(&who, questions.began);
            assert!(first > questions.began && first <= questions.began + LOOK_EVERY);
            assert_eq!(questions.next_look(&who, first), first + LOOK_EVERY);
            assert_eq!(questions.next_look(&who, first + 7 * LOOK_EVERY + SECOND), first + 8 * LOOK_EVERY);
            phases.insert((first - questions.began).as_secs() / 6);
        }
        assert!(phases.len() > 5, "they are spread: {phases:?}");
    }
}
