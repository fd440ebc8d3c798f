//! Where the servers' programs are, and whether they are new enough.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::Error;

/// The environment variable that names the nats-server program.
pub const NATS_SERVER_VARIABLE: &str = "ROADSTEAD_NATS_SERVER";
/// The environment variable that names the folder with Postgres's programs.
pub const POSTGRES_BIN_VARIABLE: &str = "ROADSTEAD_POSTGRES_BIN";

const NATS_SERVER_NEEDED: (u32, u32) = (2, 11);
const POSTGRES_NEEDED: (u32, u32) = (14, 0);

/// The programs of both servers, found and checked.
#[derive(Debug, Clone)]
pub struct Binaries {
    /// The nats-server program.
    pub nats_server: PathBuf,
    /// The folder that holds `postgres`, `initdb` and their like.
    pub postgres_bin: PathBuf,
}

impl Binaries {
    /// Finds both: where the arguments say, else on `PATH`, and Postgres also where Debian puts it.
    ///
    /// # Errors
    /// One is missing or too old; the error says what to do.
    pub fn find(nats_server: Option<&Path>, postgres_bin: Option<&Path>) -> Result<Self, Error> {
        Ok(Self { nats_server: find_nats_server(nats_server)?, postgres_bin: find_postgres(postgres_bin)? })
    }

    /// [`Binaries::find`], told by `ROADSTEAD_NATS_SERVER` and `ROADSTEAD_POSTGRES_BIN`.
    ///
    /// # Errors
    /// As [`Binaries::find`].
    pub fn from_env() -> Result<Self, Error> {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self::find(path(NATS_SERVER_VARIABLE).as_deref(), path(POSTGRES_BIN_VARIABLE).as_deref())
    }
}

fn find_nats_server(told: Option<&Path>) -> Result<PathBuf, Error> {
    let candidates = told.map_or_else(|| on_path("nats-server").collect(), |path| vec![path.to_owned()]);
    newest_usable("nats-server", candidates, NATS_SERVER_NEEDED, "2.11", |path| path.to_owned()).unwrap_or_else(|| {
        Err(Error::NotFound {
            program: "nats-server",
            looked: place(told, "PATH"),
            advice: "get version 2.11 or newer and put it on PATH or name it in ROADSTEAD_NATS_SERVER",
        })
    })
}

fn find_postgres(told: Option<&Path>) -> Result<PathBuf, Error> {
    let candidates = match told {
        Some(folder) => vec![folder.to_owned()],
        None => on_path("postgres").filter_map(real_folder).chain(debian_folders()).collect(),
    };
    let folders = candidates.into_iter().filter(|folder| folder.join("initdb").is_file()).collect();
    newest_usable("Postgres", folders, POSTGRES_NEEDED, "14", |folder| folder.join("postgres")).unwrap_or_else(|| {
        Err(Error::NotFound {
            program: "Postgres with initdb",
            looked: place(told, "PATH and /usr/lib/postgresql"),
            advice: "install a Postgres server, version 14 or newer, or name its program folder in ROADSTEAD_POSTGRES_BIN",
        })
    })
}

fn place(told: Option<&Path>, otherwise: &str) -> String {
    told.map_or_else(|| otherwise.to_owned(), |path| path.display().to_string())
}

/// Files called `name` in the folders of `PATH`, in its order.
fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join(name))
        .filter(|file| file.is_file())
        .collect::<Vec<_>>()
        .into_iter()
}

/// The folder a program really is in: distributions put links to some of Postgres's programs on `PATH`.
fn real_folder(program: PathBuf) -> Option<PathBuf> {
    Some(fs::canonicalize(program).ok()?.parent()?.to_owned())
}

/// `/usr/lib/postgresql/*/bin`, the newest version first.
fn debian_folders() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    folders.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    folders.into_iter().map(|(_, folder)| folder).collect()
}

/// The first candidate that is new enough; if there are only others, what is wrong with the first of them.
fn newest_usable(
    program: &'static str,
    candidates: Vec<PathBuf>,
    needed: (u32, u32),
    needed_text: &'static str,
    executable: impl Fn(&Path) -> PathBuf,
) -> Option<Result<PathBuf, Error>> {
    let mut problem = None;
    for candidate in candidates {
        let path = executable(&candidate);
        match said_version(&path) {
            Ok(said) if version(&said).is_some_and(|found| found >= needed) => return Some(Ok(candidate)),
            Ok(said) => {
                problem.get_or_insert(Error::WrongVersion { program, path, needed: needed_text, said });
            }
            Err(error) => {
                problem.get_or_insert(error);
            }
        }
    }
    problem.map(Err)
}

fn said_version(program: &Path) -> Result<String, Error> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|source| Error::Spawn { program: program.display().to_string(), source })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first `major.minor` in a text such as `nats-server: v2.12.8` or `postgres (PostgreSQL) 15.18 (Debian …)`. A
/// beta such as `18beta1` counts as its major version.
fn version(said: &str) -> Option<(u32, u32)> {
    let word = said
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    let mut numbers = word.split(|c: char| !c.is_ascii_digit());
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0);
    Some((major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_the_programs_say() {
        assert_eq!(version("nats-server: v2.12.8"), Some((2, 12)));
        assert_eq!(version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some((15, 18)));
        assert_eq!(version("postgres (PostgreSQL) 18beta1"), Some((18, 0)));
        assert_eq!(version("something else"), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_said_to_be_missing() {
        let error = find_nats_server(Some(Path::new("/nowhere/nats-server"))).unwrap_err();
        assert!(matches!(error, Error::Spawn { .. }), "{error}");
        let error = find_postgres(Some(Path::new("/nowhere"))).unwrap_err();
        assert!(error.to_string().contains("ROADSTEAD_POSTGRES_BIN"), "{error}");
    }

    #[test]
    fn a_program_that_is_too_old_is_refused_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("nats-server");
        fs::write(&program, "#!/bin/sh\necho nats-server: v2.9.10\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = find_nats_server(Some(&program)).unwrap_err();
        assert!(error.to_string().contains("2.11") && error.to_string().contains("v2.9.10"), "{error}");
    }
}
