//! `GetSandboxLogs`: the newest wanted lines of a sandbox.

use bytes::Bytes;
use prost::Message as _;
use roadstead_bus::activity::{ReadError, Subjects};
use roadstead_door::{Call, Reply};
use roadstead_proto::activity::{Kind, LINES};
use roadstead_proto::api::v1::{GetSandboxLogsRequest, GetSandboxLogsResponse, SandboxLogLine};
use roadstead_proto::internal::activity_line::Content;
use tokio::time::timeout_at;
use tonic::Status;
use uuid::Uuid;

use super::Activity;
use super::filter::Filter;
use super::newest::Newest;
use super::reader::refused;
use crate::read;

/// Bytes of an answer: below what clients accept.
const ANSWER_BYTES: usize = 3 * 1024 * 1024;

impl Activity {
    /// Answers the call.
    ///
    /// # Errors
    ///
    /// As `GetSandbox`; `INVALID_ARGUMENT` for a filter that cannot be read; `UNAVAILABLE`.
    pub(crate) async fn get_logs(&self, call: &Call, request: Bytes) -> Result<Reply, Status> {
        let request = GetSandboxLogsRequest::decode(request)
            .map_err(|_| Status::invalid_argument("the request is not a message of its type"))?;
        let GetSandboxLogsRequest { workspace_scope, sandbox, lines, since_time, sources, min_level } = request;
        let sandbox_id = read::sandbox_id(&self.bus, call, workspace_scope, sandbox).await?;
        let filter = Filter::new(("sources", sources), ("min_level", &min_level), since_time)?;
        let most = if lines == 0 { LINES } else { lines.min(LINES) };
        let reading = self.read_log(sandbox_id, Log::new(filter, most as usize));
        let answer = timeout_at(call.deadline.instant, reading)
            .await
            .map_err(|_| Status::deadline_exceeded("the lines could not be read in time"))?
            .map_err(refused)?;
        Ok(Reply::new(answer))
    }

    /// The encoded answer.
    async fn read_log(&self, sandbox_id: Uuid, mut log: Log) -> Result<Vec<u8>, ReadError> {
        let of = Subjects { sandbox_id, kind: Some(Kind::Log) };
        // Until the answer stands: what is held meanwhile is many times as large as the question.
        let turn = self.reader.turn().await?;
        self.reader.scan(&turn, of, |line| log.see(line.sequence, line.content)).await?;
        // While a page was read, what lay between it and the next one may have been trimmed. From the oldest that is still
        // there on, nothing was.
        let oldest = self.reader.oldest(sandbox_id, Kind::Log).await?;
        log.trim(oldest.unwrap_or(u64::MAX));
        Ok(log.response().encode_to_vec())
    }
}

/// A sandbox's log as it is shown, line by line. Pure.
struct Log {
    filter: Filter,
    wanted: Newest<SandboxLogLine>,
    /// Sequences of all lines, wanted or not.
    all: Vec<u64>,
}

impl Log {
    const fn new(filter: Filter, most: usize) -> Self {
        Self { filter, wanted: Newest::new(most, ANSWER_BYTES), all: Vec::new() }
    }

    fn see(&mut self, sequence: u64, content: Content) {
        let Content::Log(log) = content else { return };
        self.all.push(sequence);
        if self.filter.wants(&log) && self.filter.is_recent(log.event_time.as_ref()) {
            // In an answer each has a tag and a length.
            self.wanted.see(sequence, log.encoded_len() + 8, log);
        }
    }

    /// Forgets what is older.
    fn trim(&mut self, oldest: u64) {
        self.all.retain(|sequence| *sequence >= oldest);
        self.wanted.trim(oldest);
    }

    /// The answer, without the oldest lines that would make it too large.
    fn response(self) -> GetSandboxLogsResponse {
        let mut logs = self.wanted.newest_first().collect::<Vec<_>>();
        logs.reverse();
        GetSandboxLogsResponse { logs, buffer_total: u32::try_from(self.all.len()).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::lines::tests::{event, filter, log};

    fn messages(response: &GetSandboxLogsResponse) -> Vec<&str> {
        response.logs.iter().map(|log| log.message.as_str()).collect()
    }

    fn shown(most: usize, least: &str, levels: &[&str]) -> Log {
        let mut shown = Log::new(filter(least), most);
        for (at, level) in levels.iter().enumerate() {
            let sequence = at as u64 + 1;
            shown.see(sequence, if *level == "event" { event(sequence) } else { log(sequence, level) }.content);
        }
        shown
    }

    #[test]
    fn the_newest_wanted_lines_are_shown_oldest_first_and_all_are_counted() {
        let levels = ["INFO", "ERROR", "event", "ERROR", "INFO", "ERROR"];
        let response = shown(2, "ERROR", &levels).response();
        assert_eq!((messages(&response), response.buffer_total), (vec!["4", "6"], 5));
        let mut trimmed = shown(9, "", &levels);
        trimmed.trim(4);
        let response = trimmed.response();
        assert_eq!((messages(&response), response.buffer_total), (vec!["4", "5", "6"], 3));
    }

    #[test]
    fn an_answer_stays_below_what_clients_accept() {
        let mut large = Log::new(filter(""), 2000);
        for sequence in 1..=2000 {
            let Content::Log(line) = log(sequence, "INFO").content else { panic!("a log") };
            large.see(sequence, Content::Log(SandboxLogLine { message: "x".repeat(4000), ..line }));
        }
        let response = large.response();
        assert!(response.encoded_len() <= ANSWER_BYTES && response.logs.len() > 700, "{}", response.logs.len());
        assert_eq!(response.buffer_total, 2000);
    }
}
