//! Side sessions to Postgres: to look at what is there, to hold locks, to break things.
//!
//! A session is a `psql` process. That keeps the tests' view of the database independent of the code under test.

use std::{fmt, path::Path, process::Stdio};

use secrecy::ExposeSecret;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{Login, programs};

/// Between the fields of a row; no test data holds it.
const FIELD: &str = "\u{1f}";
const MARK: &str = "\u{1e}done";

/// The rows of a statement, each a list of texts; NULL is an empty text.
pub type Rows = Vec<Vec<String>>;

/// What Postgres said no to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// The five characters of SQLSTATE.
    pub state: String,
    /// The message.
    pub message: String,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.state)
    }
}

impl std::error::Error for SqlError {}

/// One open session. Dropped, it is closed and its transaction, if any, rolled back.
#[derive(Debug)]
pub struct Session {
    _psql: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Session {
    /// Opens a session.
    ///
    /// # Panics
    /// Postgres does not let it in.
    pub async fn open(login: &Login) -> Self {
        let bin = programs::servers().postgres_bin.join("psql");
        let program = if bin.is_file() { bin.as_path() } else { Path::new("psql") };
        let mut psql = Command::new(program)
            .args(["--no-psqlrc", "--no-align", "--tuples-only", "--quiet", "--field-separator", FIELD])
            .args(["--host", &login.host, "--port", &login.port.to_string(), "--username", &login.user])
            .args(["--dbname", &login.database])
            .env("PGPASSWORD", login.password.expose_secret())
            .env("PGCONNECT_TIMEOUT", "10")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let input = psql.stdin.take().unwrap();
        let output = BufReader::new(psql.stdout.take().unwrap()).lines();
        let errors = psql.stderr.take().unwrap();
        let mut session = Self { _psql: psql, input, output };
        if session.try_run("select 1").await.is_err() {
            let mut said = String::new();
            let mut errors = BufReader::new(errors);
            tokio::io::AsyncReadExt::read_to_string(&mut errors, &mut said).await.unwrap();
            panic!("no session as {}: {said}", login.user);
        }
        // From here on errors are told by the mark; the pipe only has to be kept from filling up.
        tokio::spawn(async move {
            let mut errors = BufReader::new(errors);
            let mut nowhere = tokio::io::sink();
            tokio::io::copy(&mut errors, &mut nowhere).await
        });
        session
    }

    /// Runs statements and returns their rows.
    ///
    /// # Errors
    /// Postgres refuses the last of them, or the session is gone (state `08000`).
    pub async fn try_run(&mut self, sql: &str) -> Result<Rows, SqlError> {
        let gone = |message: String| SqlError { state: "08000".to_owned(), message };
        let text = format!("{sql}\n;\n\\echo '{MARK}' :SQLSTATE :LAST_ERROR_MESSAGE\n");
        self.input.write_all(text.as_bytes()).await.map_err(|error| gone(error.to_string()))?;
        let mut rows = Rows::new();
        loop {
            let line = self.output.next_line().await.map_err(|error| gone(error.to_string()))?;
            let line = line.ok_or_else(|| gone("the session has ended".to_owned()))?;
            let Some(end) = line.strip_prefix(MARK) else {
                rows.push(line.split(FIELD).map(str::to_owned).collect());
                continue;
            };
            let (state, message) = end.trim_start().split_once(' ').unwrap_or((end.trim(), ""));
            return match state {
                "00000" => Ok(rows),
                state => Err(SqlError { state: state.to_owned(), message: message.to_owned() }),
            };
        }
    }

    /// [`Session::try_run`] for what must not fail.
    pub async fn run(&mut self, sql: &str) -> Rows {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{error}: {sql}"))
    }

    /// The single value of a query.
    pub async fn value(&mut self, sql: &str) -> String {
        match self.run(sql).await.as_mut_slice() {
            [row] if row.len() == 1 => std::mem::take(&mut row[0]),
            rows => panic!("one value was expected from {sql}, not {rows:?}"),
        }
    }

    /// Opens a transaction and runs `sql` in it, say `select … for update`: what it locked stays locked until
    /// [`Session::release`] or the session's end.
    pub async fn hold(&mut self, sql: &str) -> Rows {
        self.run("begin").await;
        self.run(sql).await
    }

    /// Ends what [`Session::hold`] began, changing nothing.
    pub async fn release(&mut self) {
        self.run("rollback").await;
    }
}
