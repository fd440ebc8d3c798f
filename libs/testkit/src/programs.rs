//! The programs that tests run.

use std::{
    env,
    path::{Path, PathBuf},
};

use roadstead_embedded::{Binaries, binaries};

/// The servers' programs: as the environment says, else those that `./dev` has put into the workspace, else from the
/// machine.
#[must_use]
pub fn servers() -> Binaries {
    let fetched = workspace().join(".roadstead/tools/nats-server");
    let nats = told(binaries::NATS_SERVER_VARIABLE).or_else(|| fetched.exists().then_some(fetched));
    let postgres = told(binaries::POSTGRES_BIN_VARIABLE);
    Binaries::find(nats.as_deref(), postgres.as_deref())
        .unwrap_or_else(|error| panic!("{error}; ./dev gets what is missing"))
}

/// The environment variable that names the program under test.
pub const PROGRAM_VARIABLE: &str = "ROADSTEAD_PROGRAM";

/// The program under test: as the environment says, else the one beside this test in the target folder.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn roadstead() -> PathBuf {
    told(PROGRAM_VARIABLE).unwrap_or_else(|| {
        let test = env::current_exe().expect("a test knows its own program");
        let built = test.ancestors().skip(1).map(|folder| folder.join("roadstead")).find(|program| program.is_file());
        built.unwrap_or_else(|| panic!("the program is not built: cargo build --workspace --bins, or ./dev test"))
    })
}

/// The folder of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the crate lies two folders below the workspace").to_owned()
}

fn told(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}
