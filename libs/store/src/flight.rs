//! Statements that travel together: all are sent before the first answer is awaited.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, Row};

use crate::parameter::Parameter;

/// Longest wait for the answers of one flight. Statements and locks have shorter limits of their own, so this only
/// ends the wait for a peer that is not there any more.
const LONGEST: Duration = Duration::from_secs(15);

/// A statement with its values.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) sql: &'static str,
    pub(crate) parameters: Vec<Parameter>,
}

impl Step {
    /// A statement without values.
    pub(crate) const fn plain(sql: &'static str) -> Self {
        Self { sql, parameters: Vec::new() }
    }

    pub(crate) fn new<const N: usize>(sql: &'static str, parameters: [Parameter; N]) -> Self {
        Self { sql, parameters: parameters.into() }
    }
}

/// Place of a step in its flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(usize);

/// Steps, in the order in which Postgres will run them.
#[derive(Debug, Default)]
pub(crate) struct Flight(Vec<Step>);

/// Why a flight came to nothing.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A statement failed, and so did all that followed it in the transaction.
    Statement { slot: Slot, error: Error, before: Answers },
    /// Not every statement was sent or answered: the connection must not be used again.
    Broken(Option<Error>),
}

/// The rows of every step that was answered.
#[derive(Debug, Default)]
pub(crate) struct Answers(Vec<Vec<Row>>);

impl Answers {
    pub(crate) fn rows(&self, slot: Slot) -> &[Row] {
        self.0.get(slot.0).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn take(&mut self, slot: Slot) -> Vec<Row> {
        self.0.get_mut(slot.0).map(std::mem::take).unwrap_or_default()
    }
}

impl Flight {
    pub(crate) fn add(&mut self, step: Step) -> Slot {
        self.0.push(step);
        Slot(self.0.len() - 1)
    }

    /// Sends all steps and examines every answer.
    pub(crate) async fn fly(self, client: &ClientWrapper) -> Result<Answers, Failed> {
        let answers = tokio::time::timeout(LONGEST, self.send(client)).await.map_err(|_| Failed::Broken(None))??;
        let mut rows = Vec::with_capacity(answers.len());
        for (index, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => rows.push(answer),
                // The first failure is the cause; what follows fails because of it.
                Err(error) if ends_connection(&error) => return Err(Failed::Broken(Some(error))),
                Err(error) => {
                    return Err(Failed::Statement { slot: Slot(index), error, before: Answers(rows) });
                }
            }
        }
        Ok(Answers(rows))
    }

    async fn send(self, client: &ClientWrapper) -> Result<Vec<Result<Vec<Row>, Error>>, Failed> {
        // One more round trip on a connection that has not seen a statement yet; none after that.
        let statements = try_join_all(self.0.iter().map(|step| client.prepare_cached(step.sql)))
            .await
            .map_err(|error| Failed::Broken(Some(error)))?;
        let requests = self.0.into_iter().zip(statements).map(|(step, statement)| async move {
            client.query_raw(&statement, step.parameters).await?.try_collect::<Vec<Row>>().await
        });
        in_order(requests.map(|request| Box::pin(request) as Request<'_>).collect()).await
    }
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// Starts the requests one after the other, then waits for all. The driver sends a request when it is first polled; one
/// that has failed by then was not sent, and a COMMIT behind it must not go out either.
async fn in_order(mut requests: Vec<Request<'_>>) -> Result<Vec<Result<Vec<Row>, Error>>, Failed> {
    let mut answers: Vec<Option<Result<Vec<Row>, Error>>> = requests.iter().map(|_| None).collect();
    let mut started = false;
    poll_fn(|context| {
        let mut waiting = false;
        for (request, answer) in requests.iter_mut().zip(&mut answers) {
            if answer.is_some() {
                continue;
            }
            match request.as_mut().poll(context) {
                Poll::Ready(Err(error)) if !started && error.as_db_error().is_none() => {
                    return Poll::Ready(Err(Failed::Broken(Some(error))));
                }
                Poll::Ready(result) => *answer = Some(result),
                Poll::Pending => waiting = true,
            }
        }
        started = true;
        if waiting { Poll::Pending } else { Poll::Ready(Ok(())) }
    })
    .await?;
    Ok(answers.into_iter().flatten().collect())
}

/// Whether the error is the end of the connection and not of a statement.
fn ends_connection(error: &Error) -> bool {
    use tokio_postgres::error::Severity;
    match error.as_db_error() {
        None => true,
        Some(told) => {
            matches!(told.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
                || *told.code() == SqlState::ADMIN_SHUTDOWN
                || *told.code() == SqlState::CRASH_SHUTDOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;

    use super::*;

    /// Any error of the driver that did not come from Postgres.
    fn unsent() -> Error {
        "no_such_option=1".parse::<tokio_postgres::Config>().unwrap_err()
    }

    /// A request that is answered once it was polled so many times, and notes each time.
    fn request(name: u8, polls: u32, log: &Mutex<Vec<u8>>) -> Request<'_> {
        let mut left = polls;
        Box::pin(poll_fn(move |context| {
            log.lock().unwrap().push(name);
            left -= 1;
            if left == 0 {
                return Poll::Ready(Ok(Vec::new()));
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }))
    }

    #[tokio::test]
    async fn requests_start_in_order_whichever_is_answered_first() {
        let log = Mutex::new(Vec::new());
        let requests = vec![request(1, 3, &log), request(2, 1, &log), request(3, 2, &log)];
        assert_eq!(in_order(requests).await.unwrap().len(), 3);
        assert_eq!(log.into_inner().unwrap()[..3], [1, 2, 3]);
    }

    #[tokio::test]
    async fn nothing_is_sent_behind_a_request_that_could_not_be() {
        let log = Mutex::new(Vec::new());
        let requests = vec![request(1, 2, &log), Box::pin(ready(Err(unsent()))), request(3, 1, &log)];
        assert!(matches!(in_order(requests).await, Err(Failed::Broken(Some(_)))));
        assert_eq!(log.into_inner().unwrap(), [1]);
    }
}
