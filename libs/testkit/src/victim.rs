//! What a test does to a process.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

const STOP_TIME: Duration = Duration::from_secs(5);

/// A process that a test signals. It belongs to somebody else, who collects its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    pid: Pid,
}

impl Victim {
    /// The process with that id.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self { pid: Pid::from_raw(i32::try_from(pid).expect("a process id fits")) }
    }

    /// KILL: it ends at once.
    pub fn kill(self) {
        self.signal(Signal::SIGKILL);
    }

    /// TERM: it is asked to end.
    pub fn terminate(self) {
        self.signal(Signal::SIGTERM);
    }

    /// FREEZE: none of its threads runs any more when this returns. Its connections stay.
    pub fn freeze(self) {
        self.signal(Signal::SIGSTOP);
        let deadline = Instant::now() + STOP_TIME;
        while !self.is_frozen() {
            assert!(Instant::now() < deadline, "process {} does not stop", self.pid);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// It runs again.
    pub fn thaw(self) {
        self.signal(Signal::SIGCONT);
    }

    /// Whether it lives; a zombie does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        state(&format!("/proc/{}/stat", self.pid)).is_some_and(|state| state != 'Z')
    }

    /// How many files and sockets it has open.
    #[must_use]
    pub fn descriptors(self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("the process lives").count()
    }

    /// How much memory it has, in bytes.
    #[must_use]
    pub fn memory(self) -> u64 {
        self.bytes("VmRSS:")
    }

    /// The most memory that it ever had, in bytes.
    #[must_use]
    pub fn peak_memory(self) -> u64 {
        self.bytes("VmHWM:")
    }

    fn bytes(self, of: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("the process lives");
        let kibibytes = status.lines().find_map(|line| line.strip_prefix(of)?.trim().strip_suffix(" kB"));
        1024 * kibibytes.and_then(|number| number.trim().parse::<u64>().ok()).expect("the system says it")
    }

    fn is_frozen(self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the process lives");
        threads.flatten().all(|thread| {
            let path = thread.path().join("stat");
            path.to_str().and_then(state).is_none_or(|state| state == 'T')
        })
    }

    fn signal(self, signal: Signal) {
        kill(self.pid, signal).unwrap_or_else(|error| panic!("{signal} to process {}: {error}", self.pid));
    }
}

/// The letter that follows `pid (name)`; the name may hold anything, so it ends at the last parenthesis.
fn state(path: &str) -> Option<char> {
    fs::read_to_string(path).ok()?.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_frozen_process_stands_still_and_a_thawed_one_goes_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let victim = Victim::new(child.id());
        victim.freeze();
        drop(child.stdin.take());
        assert!(child.try_wait().unwrap().is_none());
        assert!(victim.is_alive());
        victim.thaw();
        assert!(child.wait().unwrap().success());
        assert!(!victim.is_alive());
    }

    #[test]
    fn a_killed_process_is_not_alive_even_before_its_end_is_collected() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let victim = Victim::new(child.id());
        victim.kill();
        while victim.is_alive() {
            thread::yield_now();
        }
        child.wait().unwrap();
    }
}
