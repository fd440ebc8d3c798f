//! One question, asked again and again while there is no answer. An answer to any of the times counts: were those that
//! come late thrown away, a service that is too slow for the moment would only be given more to do for nothing.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use roadstead_bus::RequestError;

/// The times a question was asked.
pub(super) struct Asked<A, F> {
    ask: A,
    open: FuturesUnordered<Pin<Box<F>>>,
}

impl<A, F> Asked<A, F>
where
    A: Fn() -> F,
    F: Future<Output = Result<Bytes, RequestError>>,
{
    /// `ask` asks, and waits for as long as an answer may be of use.
    pub(super) fn new(ask: A) -> Self {
        Self { ask, open: FuturesUnordered::new() }
    }

    /// Asks, and waits so long for an answer to this time or an earlier one. That there is no room for one of the times,
    /// or that it failed, says nothing of the others.
    ///
    /// # Errors
    ///
    /// `TimedOut`, `NoResponders`, or that of the only time that was open.
    pub(super) async fn once_more(&mut self, patience: Duration) -> Result<Bytes, RequestError> {
        self.open.push(Box::pin((self.ask)()));
        let answered = async {
            while let Some(answer) = self.open.next().await {
                match answer {
                    Ok(_) | Err(RequestError::NoResponders) => return answer,
                    Err(_) if self.open.is_empty() => return answer,
                    Err(error) => tracing::debug!(%error, "a read that was repeated failed once"),
                }
            }
            Err(RequestError::TimedOut)
        };
        tokio::time::timeout(patience, answered).await.unwrap_or(Err(RequestError::TimedOut))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{Instant, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_earlier_time_counts() {
        let times = Cell::new(0);
        let mut asked = Asked::new(|| {
            times.set(times.get() + 1);
            let took = if times.get() == 1 { 3 * SECOND } else { 60 * SECOND };
            async move {
                sleep(took).await;
                Ok(Bytes::from_static(b"answer"))
            }
        });
        let began = Instant::now();
        assert!(matches!(asked.once_more(2 * SECOND).await, Err(RequestError::TimedOut)));
        assert_eq!(asked.once_more(2 * SECOND).await.unwrap(), "answer");
        assert_eq!((began.elapsed(), times.get()), (3 * SECOND, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_repetition_for_which_there_is_no_room_does_not_end_the_wait_for_an_earlier_time() {
        let times = Cell::new(0);
        let mut asked = Asked::new(|| {
            times.set(times.get() + 1);
            let first = times.get() == 1;
            async move {
                sleep(if first { 3 * SECOND } else { SECOND / 10 }).await;
                if first { Ok(Bytes::from_static(b"answer")) } else { Err(RequestError::Overloaded) }
            }
        });
        assert!(matches!(asked.once_more(2 * SECOND).await, Err(RequestError::TimedOut)));
        assert_eq!(asked.once_more(2 * SECOND).await.unwrap(), "answer");
        assert!(matches!(asked.once_more(2 * SECOND).await, Err(RequestError::Overloaded)), "nothing else is open");
    }
}
