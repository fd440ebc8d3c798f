//! Which lines a client wants. Pure.

use prost_types::Timestamp;
use roadstead_proto::api::v1::SandboxLogLine;
use roadstead_service_kit::status::Status;

/// Sources that a client may name.
const SOURCES: usize = 16;

/// How much a line matters; the more, the lower. OCSF records count as INFO, and so does what has no known level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    fn read(text: &str) -> Option<Self> {
        let is = |name: &str| text.eq_ignore_ascii_case(name);
        Some(match () {
            () if is("ERROR") => Self::Error,
            () if is("WARN") => Self::Warn,
            () if is("INFO") || is("OCSF") => Self::Info,
            () if is("DEBUG") => Self::Debug,
            () if is("TRACE") => Self::Trace,
            () => return None,
        })
    }
}

/// What is wanted of a log.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// Any, if empty.
    sources: Vec<String>,
    least: Option<Level>,
    since: Option<Timestamp>,
}

impl Filter {
    /// The filter of a request, whose fields have these names.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` with the field.
    pub(crate) fn new(
        (sources_field, sources): (&str, Vec<String>),
        (level_field, level): (&str, &str),
        since: Option<Timestamp>,
    ) -> Result<Self, tonic::Status> {
        if sources.len() > SOURCES {
            return Err(Status::invalid(sources_field, &format!("at most {SOURCES} may be named")).into());
        }
        let least = match level {
            "" => None,
            text => Some(Level::read(text).ok_or_else(|| {
                Status::invalid(level_field, "must be one of ERROR, WARN, INFO, OCSF, DEBUG and TRACE")
            })?),
        };
        Ok(Self { sources, least, since })
    }

    /// Whether a line is wanted, whenever it was.
    pub(crate) fn wants(&self, line: &SandboxLogLine) -> bool {
        let source = self.sources.is_empty() || self.sources.contains(&line.source);
        source && self.least.is_none_or(|least| Level::read(&line.level).unwrap_or(Level::Info) <= least)
    }

    /// Whether what happened then is recent enough to be shown afterwards.
    pub(crate) fn is_recent(&self, happened: Option<&Timestamp>) -> bool {
        let key = |time: &Timestamp| (time.seconds, time.nanos);
        let Some(since) = &self.since else { return true };
        happened.is_none_or(|happened| key(happened) >= key(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(sources: &[&str], level: &str) -> Filter {
        let sources = sources.iter().map(|&source| source.to_owned()).collect();
        Filter::new(("log_sources", sources), ("log_min_level", level), None).unwrap()
    }

    fn line(source: &str, level: &str) -> SandboxLogLine {
        SandboxLogLine { source: source.to_owned(), level: level.to_owned(), ..Default::default() }
    }

    #[test]
    fn levels_are_ordered_as_the_contract_says() {
        let all = ["ERROR", "WARN", "INFO", "OCSF", "DEBUG", "TRACE", "else"];
        let passed = |least: &str| {
            let filter = filter(&[], least);
            all.iter().filter(|level| filter.wants(&line("s", level))).copied().collect::<Vec<_>>()
        };
        assert_eq!(passed("ERROR"), ["ERROR"]);
        assert_eq!(passed("warn"), ["ERROR", "WARN"]);
        assert_eq!(passed("INFO"), ["ERROR", "WARN", "INFO", "OCSF", "else"]);
        assert_eq!(passed("OCSF"), passed("INFO"));
        assert_eq!(passed("DEBUG"), ["ERROR", "WARN", "INFO", "OCSF", "DEBUG", "else"]);
        assert_eq!(passed("TRACE"), all);
        assert_eq!(passed(""), all);
    }

    #[test]
    fn only_named_sources_pass_and_all_if_none_is_named() {
        assert!(filter(&["sandbox"], "").wants(&line("sandbox", "INFO")));
        assert!(!filter(&["sandbox"], "").wants(&line("gateway", "INFO")));
        assert!(filter(&["sandbox", "gateway"], "").wants(&line("gateway", "INFO")));
        assert!(filter(&[], "").wants(&line("gateway", "INFO")));
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_field() {
        let refused = Filter::new(("sources", Vec::new()), ("min_level", "LOUD"), None).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().starts_with("min_level"), "{}", refused.message());
        let many = vec![String::new(); SOURCES + 1];
        assert!(Filter::new(("sources", many), ("min_level", ""), None).is_err());
    }

    #[test]
    fn the_moment_itself_is_recent() {
        let at = |seconds, nanos| Timestamp { seconds, nanos };
        let filter = Filter::new(("s", Vec::new()), ("l", ""), Some(at(5, 5))).unwrap();
        assert!(filter.is_recent(Some(&at(5, 5))) && filter.is_recent(Some(&at(6, 0))));
        assert!(!filter.is_recent(Some(&at(5, 4))) && !filter.is_recent(Some(&at(4, 9))));
    }
}
