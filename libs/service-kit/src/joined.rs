//! Questions that are asked together. What waits while others are under way goes into the next batch: a caller who is alone
//! is asked for at once, and many share the cost of a statement or of a transaction. Nobody joins a batch that was already
//! sent, so no answer is older than its question (D7).

use std::future::Future;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Questions that wait for room to be asked; more wait with their callers.
const WAITING: usize = 256;

/// Where questions are asked.
#[derive(Debug)]
pub struct Joined<Q, A>(mpsc::Sender<Asked<Q, A>>);

/// What was asked and not answered yet.
#[derive(Debug)]
pub struct Questions<Q, A>(mpsc::Receiver<Asked<Q, A>>);

#[derive(Debug)]
struct Asked<Q, A> {
    question: Q,
    answer: oneshot::Sender<A>,
}

/// How questions are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Questions of one batch.
    pub together: usize,
    /// Batches that are under way at a time.
    pub under_way: usize,
}

/// A place for questions, and the questions to be answered by [`Questions::run`].
#[must_use]
pub fn joined<Q, A>() -> (Joined<Q, A>, Questions<Q, A>) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Joined(sender), Questions(receiver))
}

impl<Q, A> Joined<Q, A> {
    /// The answer to a question, of a batch that begins after this was called. None: questions are answered no more, since
    /// the role is stopping.
    pub async fn ask(&self, question: Q) -> Option<A> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Asked { question, answer }).await.ok()?;
        answered.await.ok()
    }
}

impl<Q, A> Questions<Q, A> {
    /// Asks all questions until `stop`, and then what waits. `batch` answers each of some questions, in their order.
    pub async fn run<F>(mut self, limits: Limits, stop: CancellationToken, batch: impl Fn(Vec<Q>) -> F)
    where
        F: Future<Output = Vec<A>>,
    {
        let mut under_way = FuturesUnordered::new();
        let mut waiting = Vec::with_capacity(limits.together);
        loop {
            let room = under_way.len() < limits.under_way;
            tokio::select! {
                biased;
                Some(()) = under_way.next() => {}
                taken = self.0.recv_many(&mut waiting, limits.together), if room => {
                    if taken == 0 {
                        break;
                    }
                    // Whoever asked may be gone.
                    waiting.retain(|asked| !asked.answer.is_closed());
                    let (questions, callers) = apart(&mut waiting);
                    if !questions.is_empty() {
                        let answers = batch(questions);
                        under_way.push(async move { tell(callers, answers.await) });
                    }
                }
                () = stop.cancelled(), if !self.0.is_closed() => self.0.close(),
            }
        }
        while let Some(()) = under_way.next().await {}
    }
}

fn apart<Q, A>(waiting: &mut Vec<Asked<Q, A>>) -> (Vec<Q>, Vec<oneshot::Sender<A>>) {
    waiting.drain(..).map(|Asked { question, answer }| (question, answer)).unzip()
}

fn tell<A>(callers: Vec<oneshot::Sender<A>>, answers: Vec<A>) {
    let (asked, answered) = (callers.len(), answers.len());
    if asked != answered {
        tracing::error!(asked, answered, "a batch has not answered each of its questions");
    }
    debug_assert_eq!(asked, answered, "a batch answers each of its questions");
    for (caller, answer) in callers.into_iter().zip(answers) {
        // A caller that is gone by now needs no answer.
        drop(caller.send(answer));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::join_all;
    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::*;

    const LIMITS: Limits = Limits { together: 4, under_way: 2 };

    /// Halves numbers, a batch for each permit, and notes what was asked together.
    struct Halves {
        asked: Mutex<Vec<Vec<u32>>>,
        permits: Semaphore,
    }

    impl Halves {
        fn new(permits: usize) -> Self {
            Self { asked: Mutex::default(), permits: Semaphore::new(permits) }
        }

        async fn find(&self, numbers: Vec<u32>) -> Vec<u32> {
            self.asked.lock().unwrap().push(numbers.clone());
            self.permits.acquire().await.unwrap().forget();
            numbers.into_iter().map(|number| number / 2).collect()
        }

        async fn were_asked(&self, times: usize) {
            while self.asked.lock().unwrap().len() < times {
                yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn what_waits_is_asked_together_and_each_has_its_own_answer() {
        let (halves, (joined, questions)) = (Halves::new(9), joined());
        let stop = CancellationToken::new();
        let asking = async {
            let answers = join_all([2, 4, 6, 8, 10].map(|number| joined.ask(number))).await;
            stop.cancel();
            answers
        };
        let answering = questions.run(LIMITS, stop.clone(), |numbers| halves.find(numbers));
        let (answers, ()) = tokio::join!(asking, answering);
        assert_eq!(answers, [1, 2, 3, 4, 5].map(Some));
        assert_eq!(*halves.asked.lock().unwrap(), [vec![2, 4, 6, 8], vec![10]]);
    }

    #[tokio::test]
    async fn nobody_joins_a_batch_that_was_sent_and_nothing_is_asked_for_nobody() {
        let (halves, (joined, questions)) = (Halves::new(0), joined());
        let stop = CancellationToken::new();
        let asking = async {
            let one = async { joined.ask(2).await };
            let two = async {
                halves.were_asked(1).await;
                joined.ask(4).await
            };
            let rest = async {
                halves.were_asked(2).await;
                let given_up = tokio::time::timeout(std::time::Duration::ZERO, joined.ask(10)).await;
                let let_go = async { halves.permits.add_permits(9) };
                let (rest, ()) = tokio::join!(join_all([6, 8].map(|number| joined.ask(number))), let_go);
                (given_up.is_err(), rest)
            };
            let answers = tokio::join!(one, two, rest);
            stop.cancel();
            answers
        };
        let (answers, ()) = tokio::join!(asking, questions.run(LIMITS, stop.clone(), |numbers| halves.find(numbers)));
        assert_eq!(answers, (Some(1), Some(2), (true, vec![Some(3), Some(4)])));
        assert_eq!(*halves.asked.lock().unwrap(), [vec![2], vec![4], vec![6, 8]]);
    }

    #[tokio::test]
    async fn whoever_asks_too_late_is_told_so() {
        let (joined, questions) = joined::<u32, u32>();
        let stop = CancellationToken::new();
        stop.cancel();
        questions.run(LIMITS, stop, |_| async { Vec::new() }).await;
        assert_eq!(joined.ask(1).await, None);
    }
}
