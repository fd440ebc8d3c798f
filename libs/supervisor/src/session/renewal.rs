//! The renewal of the token while a session lasts.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use tonic::Status;

use super::retry::Retry;
use super::{Done, Session};
use crate::calls;
use crate::client::Client;
use crate::observed::Observation;
use crate::token::Token;

/// A timer for what is due later than any timer is set.
const FAR: Duration = Duration::from_secs(24 * 3600);

/// Has the token renewed before a connection, if it has run out or soon will: that is good for one thing still.
pub(super) async fn before_connecting(client: &mut Client, api: &calls::Api) {
    if client.token.refresh_at().is_some_and(|at| at <= now()) {
        match calls::refresh(api.clone(), client.token.clone()).await {
            Ok(token) => client.keep(token),
            Err(status) => tracing::warn!(code = ?status.code(), "the token could not be refreshed"),
        }
    }
}

/// When the token is to be renewed.
pub(super) fn due(token: &Token) -> Retry {
    let at = token.refresh_at();
    Retry::at(at.map(|at| Instant::now() + at.duration_since(now()).unwrap_or_default().min(FAR)))
}

impl Session {
    pub(super) fn renew(&mut self, client: &Client) {
        self.renewal.begun();
        let call = calls::refresh(self.api.clone(), client.token.clone());
        self.calls.spawn(async { Done::Renewed(call.await) });
    }

    pub(super) fn renewed(&mut self, client: &mut Client, renewed: Result<Token, Status>) {
        match renewed {
            Ok(token) => {
                client.keep(token);
                self.renewal = due(&client.token);
                client.tell(Observation::TokenRefreshed { at: std::time::Instant::now() });
            }
            Err(status) => {
                tracing::warn!(code = ?status.code(), message = status.message(), "the token could not be refreshed");
                self.renewal.failed();
            }
        }
    }
}

impl Client {
    fn keep(&mut self, token: Token) {
        if let Err(error) = self.settings.token.keep(&token) {
            tracing::warn!(%error, "the refreshed token is kept in memory only");
        }
        self.token = token;
    }
}

#[allow(clippy::disallowed_methods, reason = "a token's times are those of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}
