//! Questions without effect, which may be asked more than once and of more than one.
//!
//! The broker gives a request to one of those who share a subject, by chance, and goes on giving requests to one that
//! hangs until its connection is found dead. So after a silence a question is put to all of them: whichever lives
//! answers, and no chance is in it. An answer to any of the times counts: were those that come late thrown away, a
//! service that is too slow for the moment would only be given more to do for nothing.
//!
//! Nor does a word that decides nothing end the wait for the others: nobody at the subject for all says nothing about the
//! one that has the question already, and one that cannot answer now is often the quickest to say so.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use roadstead_proto::subject::to_all;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::Bus;
use crate::request::{RequestError, answer};

/// Header with a question's id, the same at all times that it is put: a replica knows by it what it works on already.
pub(crate) const QUESTION: &str = "Roadstead-Question";

/// How long the one that was asked first may say nothing; then twice as long each time.
const SILENCE: Duration = Duration::from_secs(1);

/// Whom a question is put to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    One,
    All,
}

impl Bus {
    /// Asks one of those who serve `subject` a question that has no effect, and all of them if that one says nothing
    /// for a second, again after two more, four more, and so on. Waits for the first answer to any of these times, at
    /// most `timeout`. An answer that `is_final` says no of, for instance that a replica is cut off from what it reads,
    /// counts only if no better one can come any more. For endpoints that are made by
    /// [`Endpoint::read`](crate::service::Endpoint::read).
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. That one time failed counts only if no other may still be answered.
    pub async fn read(
        &self,
        subject: &str,
        question: Bytes,
        timeout: Duration,
        is_final: impl Fn(&Bytes) -> bool,
    ) -> Result<Bytes, RequestError> {
        let mut headers = HeaderMap::new();
        headers.insert(QUESTION, Uuid::new_v4().to_string());
        let put = |whom, timeout| {
            let to = if whom == Whom::One { subject.to_owned() } else { to_all(subject) };
            let (headers, question) = (headers.clone(), question.clone());
            async move { answer(self.ask(to, headers, question, timeout).await?) }
        };
        let repeated = || {
            self.metrics().reads_repeated.inc();
        };
        put_until_answered(put, repeated, timeout, is_final).await
    }
}

async fn put_until_answered<P, F>(
    put: P,
    repeated: impl Fn(),
    timeout: Duration,
    is_final: impl Fn(&Bytes) -> bool,
) -> Result<Bytes, RequestError>
where
    P: Fn(Whom, Duration) -> F,
    F: Future<Output = Result<Bytes, RequestError>>,
{
    let (mut now, mut silence) = (Instant::now(), SILENCE);
    let end = now + timeout;
    let mut open = FuturesUnordered::from_iter([put(Whom::One, timeout)]);
    // The newest answer that is not final.
    let mut unable = None;
    loop {
        tokio::select! {
            Some(answer) = open.next() => match answer {
                Ok(answer) if is_final(&answer) || open.is_empty() => return Ok(answer),
                Ok(answer) => unable = Some(answer),
                Err(error) if open.is_empty() => return unable.ok_or(error),
                // It costs nobody anything to ask again soon, and somebody may begin to serve.
                Err(RequestError::NoResponders) => silence = SILENCE,
                Err(error) => tracing::debug!(%error, "one of the times that a question was put"),
            },
            () = sleep_until(now + silence) => {
                now = Instant::now();
                silence *= 2;
                open.push(put(Whom::All, end.duration_since(now)));
                repeated();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Asks with ten seconds of patience; the times that the question was put, and when it was over.
    async fn ask(
        said: impl Fn(usize) -> (Duration, Result<Bytes, RequestError>),
    ) -> (Result<Bytes, RequestError>, Vec<(Whom, u64)>, Duration) {
        let (began, times) = (Instant::now(), RefCell::new(Vec::new()));
        let put = |whom, left| {
            let (took, answer) = said(times.borrow().len());
            times.borrow_mut().push((whom, began.elapsed().as_secs()));
            async move {
                sleep(took.min(left)).await;
                if took < left { answer } else { Err(RequestError::TimedOut) }
            }
        };
        let answer = put_until_answered(put, || (), 10 * SECOND, |answer| *answer == "yes").await;
        (answer, times.into_inner(), began.elapsed())
    }

    fn yes() -> Result<Bytes, RequestError> {
        Ok(Bytes::from_static(b"yes"))
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_answered_soon_has_asked_one_and_once() {
        let (answer, times, took) = ask(|_| (SECOND / 2, yes())).await;
        assert!(answer.is_ok());
        assert_eq!((times, took), (vec![(Whom::One, 0)], SECOND / 2));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_silence_all_are_asked_and_the_pauses_grow() {
        let (answer, times, took) = ask(|_| (60 * SECOND, yes())).await;
        assert!(matches!(answer, Err(RequestError::TimedOut)));
        assert_eq!(times, [(Whom::One, 0), (Whom::All, 1), (Whom::All, 3), (Whom::All, 7)]);
        assert_eq!(took, 10 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_time_counts() {
        let (answer, times, took) = ask(|time| (if time == 0 { 2 * SECOND } else { 60 * SECOND }, yes())).await;
        assert!(answer.is_ok());
        assert_eq!((times.len(), took), (2, 2 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn one_time_for_which_there_is_no_room_does_not_end_the_wait_for_another() {
        let (answer, _, took) =
            ask(|time| if time == 0 { (2 * SECOND, yes()) } else { (SECOND / 10, Err(RequestError::Overloaded)) })
                .await;
        assert!(answer.is_ok());
        assert_eq!(took, 2 * SECOND);
        let (answer, times, _) = ask(|_| (SECOND / 10, Err(RequestError::Overloaded))).await;
        assert!(matches!(answer, Err(RequestError::Overloaded)), "nothing else is open");
        assert_eq!(times.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn that_nobody_is_there_is_told_at_once() {
        let (answer, times, took) = ask(|_| (SECOND / 10, Err(RequestError::NoResponders))).await;
        assert!(matches!(answer, Err(RequestError::NoResponders)));
        assert_eq!((times.len(), took), (1, SECOND / 10));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_to_put_it_to_again_says_nothing_about_the_one_that_has_it() {
        let nobody = || (SECOND / 10, Err(RequestError::NoResponders));
        let (answer, _, took) = ask(|time| if time == 0 { (5 * SECOND / 2, yes()) } else { nobody() }).await;
        assert!(answer.is_ok());
        assert_eq!(took, 5 * SECOND / 2);
        // Who comes meanwhile is found within a second.
        let (answer, times, took) = ask(|time| match time {
            0 => (60 * SECOND, yes()),
            4 => (SECOND / 10, yes()),
            _ => nobody(),
        })
        .await;
        assert!(answer.is_ok());
        assert_eq!((times.len(), took), (5, 4 * SECOND + SECOND / 10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_quick_word_of_one_that_cannot_answer_leaves_the_answer_to_another() {
        let unable = || (SECOND / 10, Ok(Bytes::from_static(b"unable")));
        let (answer, _, took) = ask(|time| if time == 0 { (6 * SECOND / 5, yes()) } else { unable() }).await;
        assert_eq!(answer.unwrap(), "yes");
        assert_eq!(took, 6 * SECOND / 5);
        // It is told if there is nothing better: at once if nothing else is open, otherwise in the end.
        let (answer, times, took) = ask(|_| unable()).await;
        assert_eq!((answer.unwrap(), times.len(), took), (Bytes::from_static(b"unable"), 1, SECOND / 10));
        let (answer, _, took) = ask(|time| if time == 0 { (60 * SECOND, yes()) } else { unable() }).await;
        assert_eq!((answer.unwrap(), took), (Bytes::from_static(b"unable"), 10 * SECOND));
    }
}
