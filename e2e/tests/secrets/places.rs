//! Everywhere that somebody could read.

use std::fs;
use std::path::{Path, PathBuf};

use roadstead_testkit::Stack;

use crate::canary::{Allowed, Canaries};

/// Longest message of a refusal, in bytes.
const MESSAGE: usize = 512;

/// What was said and what is stored, with its place.
#[derive(Debug, Default)]
pub(crate) struct Places {
    found: Vec<(String, Allowed, Vec<u8>)>,
    refusals: Vec<(String, String)>,
}

impl Places {
    /// Something that was told, in which nothing a client wrote may be repeated.
    pub(crate) fn heard(&mut self, place: &str, bytes: &[u8]) {
        self.found.push((place.to_owned(), Allowed::Nothing, bytes.to_vec()));
    }

    /// How a call was refused.
    pub(crate) fn refused(&mut self, place: &str, message: &str, details: &[u8]) {
        self.refusals.push((place.to_owned(), message.to_owned()));
        self.found.push((place.to_owned(), Allowed::Nothing, [message.as_bytes(), details].concat()));
    }

    /// What a client is shown of its own objects.
    pub(crate) fn shown(&mut self, place: &str, bytes: &[u8]) {
        self.found.push((place.to_owned(), Allowed::Hostile, bytes.to_vec()));
    }

    /// Checks that there were enough answers of both kinds, and that refusals are short and of one line.
    pub(crate) fn refusals_are_short(&self) {
        let shown = self.found.iter().filter(|(_, allowed, _)| *allowed == Allowed::Hostile).count();
        assert!(shown > 40 && self.refusals.len() > 400, "{shown} successes, {} refusals", self.refusals.len());
        for (place, message) in &self.refusals {
            assert!(message.len() <= MESSAGE, "{place}: {} bytes: {message}", message.len());
            assert!(!message.contains(char::is_control), "{place}: {message:?}");
        }
    }

    /// Logs, metrics, tables and what the broker has on disk. The broker is down afterwards.
    pub(crate) async fn collect(&mut self, stack: &mut Stack) {
        for node in stack.nodes() {
            let place = format!("metrics of {} {}", node.role().name(), node.number());
            self.heard(&place, node.metrics().await.as_bytes());
        }
        let mut session = stack.session().await;
        let tables = "select table_name from information_schema.tables where table_schema = 'roadstead' \
            and table_type = 'BASE TABLE' order by 1";
        for table in session.run(tables).await.into_iter().flatten() {
            let rows = session.run(&format!("select t::text from roadstead.{table} t")).await;
            let rows = rows.into_iter().flatten().collect::<Vec<_>>().join("\n");
            self.found.push((format!("table {table}"), Allowed::Hostile, rows.into_bytes()));
        }
        drop(session);
        stack.broker().stop().await;
        for file in files(&stack.broker().store()) {
            let bytes = fs::read(&file).unwrap();
            self.found.push((format!("the broker's {}", file.display()), Allowed::Hostile, bytes));
        }
        for file in files(stack.folder()).into_iter().filter(|file| file.extension().is_some_and(|end| end == "log")) {
            let bytes = fs::read(&file).unwrap();
            self.found.push((format!("log {}", file.display()), Allowed::Nothing, bytes));
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.found.iter().map(|(.., bytes)| bytes.len()).sum()
    }

    /// The places in which something was found that must not be there, with what stands around it.
    pub(crate) fn search(&self, canaries: &Canaries) -> Vec<String> {
        let mut found = Vec::new();
        for (place, allowed, bytes) in &self.found {
            for needle in canaries.needles(*allowed) {
                if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
                    let around = &bytes[at.saturating_sub(120)..(at + 200).min(bytes.len())];
                    found.push(format!("{place}: {}", String::from_utf8_lossy(around)));
                    break;
                }
            }
        }
        found
    }
}

/// Puts a secret into a place of each kind; returns the places.
pub(crate) async fn plant(stack: &mut Stack, canaries: &Canaries) -> Vec<String> {
    let mut session = stack.session().await;
    // Bytes are shown as hex digits.
    let secret = canaries.secret("planted");
    let label = format!("update roadstead.workspace set labels = jsonb_build_object('a', '{secret}')");
    session.run(&label).await;
    let aside = format!(
        "insert into roadstead.set_aside (subject, reason, payload) values ('x', 'y', convert_to('{secret}', 'UTF8'))"
    );
    session.run(&aside).await;
    let log = stack.folder().join("planted.log");
    fs::write(&log, &secret).unwrap();
    let block = stack.broker().store().join("planted");
    fs::write(&block, format!("before{secret}after")).unwrap();
    vec!["table workspace".into(), "table set_aside".into(), "planted.log".into(), "store".into()]
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(self::files(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}
