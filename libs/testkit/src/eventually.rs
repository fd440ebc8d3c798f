//! Waiting for a condition.

use std::{future::Future, time::Duration};

use tokio::time::{Instant, sleep};

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What a condition answers: [`Option`] and [`bool`] tell only that it is not so yet, [`Result`] also why.
pub trait Answer {
    /// What comes out once it is so.
    type Value;

    /// The value, or why there is none yet.
    ///
    /// # Errors
    /// It is not so yet.
    fn answer(self) -> Result<Self::Value, String>;
}

impl Answer for bool {
    type Value = ();

    fn answer(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(String::new)
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn answer(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: std::fmt::Display> Answer for Result<T, E> {
    type Value = T;

    fn answer(self) -> Result<T, String> {
        self.map_err(|error| format!(": {error:#}"))
    }
}

/// Asks `condition` until it is so, and returns what it answers. `what` names it in the failure.
///
/// # Panics
/// It is not so within `within`; a question that hangs counts against the time too.
pub async fn eventually<F, A>(within: Duration, what: &str, mut condition: F) -> <A::Output as Answer>::Value
where
    F: FnMut() -> A,
    A: Future<Output: Answer>,
{
    let deadline = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    let mut last = String::new();
    loop {
        match tokio::time::timeout_at(deadline, condition()).await {
            Ok(answer) => match answer.answer() {
                Ok(value) => return value,
                Err(why) => last = why,
            },
            Err(_) => panic!("not within {within:?}: {what} (the question hung){last}"),
        }
        assert!(Instant::now() + pause < deadline, "not within {within:?}: {what}{last}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_returns_the_value_once_there_is_one() {
        let mut asked = 0;
        let value = eventually(Duration::from_secs(1), "the third question", || {
            asked += 1;
            let answer = (asked == 3).then_some(asked);
            async move { answer }
        })
        .await;
        assert_eq!(value, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "not within 1s: pigs fly: no wings")]
    async fn it_fails_with_the_last_reason() {
        eventually(Duration::from_secs(1), "pigs fly", || async { Err::<(), _>("no wings") }).await;
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "the question hung")]
    async fn a_question_that_hangs_fails_too() {
        eventually(Duration::from_secs(1), "an answer", std::future::pending::<bool>).await;
    }
}
