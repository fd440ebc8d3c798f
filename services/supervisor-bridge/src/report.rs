//! What a session still owes admission: its newest result, what it observes now, and its end. Pure: time and answers
//! come in.
//!
//! One report is on its way at a time. A report that was not answered is sent again, without a limit of times, under a
//! new command id and with the same number; a newer result takes the place of an older one. The end goes last, and only
//! when the registration can no longer take effect after it.

use std::time::{Duration, Instant};

use roadstead_proto::internal::{SessionReadiness, SessionResult};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Number of a session's end. It ends once, so its kind needs no other.
pub const END_NUMBER: u64 = 1;

/// A report to be sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    Result(Box<SessionResult>),
    Readiness(Box<SessionReadiness>),
    End { reason: &'static str },
}

/// What became of a report that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Admission has it.
    Recorded,
    /// The session is not, or no longer, the sandbox's.
    NotTheSession,
    /// Admission will never take this report.
    Refused,
    /// Not done, or unknown whether done.
    Again,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Send this, and tell what became of it.
    Send(Report),
    /// Nothing until then, or until something happens.
    Wait(Option<Instant>),
    /// Nothing is owed any more, ever.
    Finished,
}

#[derive(Clone, Copy, Debug)]
struct End {
    reason: &'static str,
    not_before: Instant,
}

/// What a session owes admission.
#[derive(Debug, Default)]
pub struct Reports {
    registration: Registration,
    /// The newest result that admission has not answered.
    result: Option<Box<SessionResult>>,
    /// The newest word on providers that admission has not answered.
    readiness: Option<Box<SessionReadiness>>,
    end: Option<End>,
    /// Number of what is on its way, or the end.
    flight: Option<Flight>,
    failures: u32,
    not_before: Option<Instant>,
    finished: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Registration {
    /// It may still take effect.
    #[default]
    Open,
    /// Answered with a yes, or past its deadline.
    Settled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    Result { number: u64 },
    Readiness { number: u64 },
    End,
}

impl Reports {
    /// The registration was answered with a yes, or is past its deadline and can no longer take effect.
    pub fn registration_settled(&mut self) {
        self.registration = Registration::Settled;
    }

    /// The registration was refused: there is no session to report on.
    pub fn registration_refused(&mut self) {
        self.finished = true;
    }

    /// There is a new result; it says all that earlier ones said.
    pub fn result(&mut self, result: SessionResult) {
        if self.end.is_none() && self.result.as_ref().is_none_or(|known| known.number < result.number) {
            self.result = Some(Box::new(result));
        }
    }

    /// The session observes something else of providers; it says all that earlier words said.
    pub fn readiness(&mut self, readiness: SessionReadiness) {
        if self.end.is_none() && self.readiness.as_ref().is_none_or(|known| known.number < readiness.number) {
            self.readiness = Some(Box::new(readiness));
        }
    }

    /// The session has ended, and what it observed with it; the first reason stays. A supervisor that was asked to
    /// connect again is given until `not_before` to do so: its next session then takes the place of this one, and the
    /// end is no news. That an earlier word no longer counts is told even so: the end may be far.
    pub fn end(&mut self, reason: &'static str, not_before: Instant) {
        self.readiness.take_if(|told| told.observation.is_some());
        self.end.get_or_insert(End { reason, not_before });
    }

    /// The next step.
    pub fn step(&mut self, now: Instant) -> Step {
        if self.finished {
            return Step::Finished;
        }
        if self.flight.is_some() || self.registration == Registration::Open {
            return Step::Wait(None);
        }
        if !self.owes() {
            return Step::Wait(None);
        }
        if let Some(not_before) = self.not_before.filter(|not_before| *not_before > now) {
            return Step::Wait(Some(not_before));
        }
        if let Some(result) = &self.result {
            self.flight = Some(Flight::Result { number: result.number });
            return Step::Send(Report::Result(result.clone()));
        }
        if let Some(readiness) = &self.readiness {
            self.flight = Some(Flight::Readiness { number: readiness.number });
            return Step::Send(Report::Readiness(readiness.clone()));
        }
        match self.end {
            Some(end) if now < end.not_before => Step::Wait(Some(end.not_before)),
            Some(end) => {
                self.flight = Some(Flight::End);
                Step::Send(Report::End { reason: end.reason })
            }
            None => Step::Wait(None),
        }
    }

    /// Takes in what became of the report on its way. `jitter`, from 0 to 1, spreads repeated attempts. Answers whether
    /// the session turned out not to be the sandbox's.
    pub fn told(&mut self, told: Told, now: Instant, jitter: f64) -> bool {
        let Some(flight) = self.flight.take() else { return false };
        if told == Told::Again {
            let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_PAUSE);
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(now + pause.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0));
            return false;
        }
        self.failures = 0;
        self.not_before = None;
        match flight {
            _ if told == Told::NotTheSession => self.finished = true,
            Flight::End => self.finished = true,
            Flight::Result { number } => {
                self.result.take_if(|result| result.number <= number);
            }
            Flight::Readiness { number } => {
                self.readiness.take_if(|readiness| readiness.number <= number);
            }
        }
        told == Told::NotTheSession
    }

    /// Whether anything is owed and not answered.
    #[must_use]
    pub const fn owes(&self) -> bool {
        !self.finished && (self.result.is_some() || self.readiness.is_some() || self.end.is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roadstead_proto::api::v1::ProviderReadinessObservation;

    use super::*;

    fn result(number: u64) -> SessionResult {
        SessionResult { number, ..SessionResult::default() }
    }

    fn registered() -> Reports {
        let mut reports = Reports::default();
        reports.registration_settled();
        reports
    }

    fn sent_number(step: Step) -> u64 {
        match step {
            Step::Send(Report::Result(result)) => result.number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_is_sent_before_the_registration_is_settled() {
        let now = Instant::now();
        let mut reports = Reports::default();
        reports.result(result(1));
        reports.end("gone", Instant::now());
        assert_eq!(reports.step(now), Step::Wait(None));
        reports.registration_settled();
        assert_eq!(sent_number(reports.step(now)), 1);
    }

    #[test]
    fn a_refused_registration_leaves_nothing_to_report() {
        let mut reports = Reports::default();
        reports.end("gone", Instant::now());
        reports.registration_refused();
        assert_eq!(reports.step(Instant::now()), Step::Finished);
    }

    #[test]
    fn an_unanswered_result_is_sent_again_with_its_number_and_growing_pauses() {
        let mut now = Instant::now();
        let mut reports = registered();
        reports.result(result(7));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            assert_eq!(sent_number(reports.step(now)), 7);
            assert!(!reports.told(Told::Again, now, 1.0));
            let Step::Wait(Some(until)) = reports.step(now) else { panic!() };
            pauses.push((until - now).as_millis());
            now = until;
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 10_000, 10_000, 10_000]);
        assert_eq!(sent_number(reports.step(now)), 7);
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(reports.step(now), Step::Wait(None));
    }

    #[test]
    fn a_newer_result_replaces_an_older_one_that_waits() {
        let now = Instant::now();
        let mut reports = registered();
        reports.result(result(1));
        assert_eq!(sent_number(reports.step(now)), 1);
        reports.result(result(2));
        reports.result(result(3));
        reports.result(result(2));
        assert_eq!(reports.step(now), Step::Wait(None), "one at a time");
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(sent_number(reports.step(now)), 3);
    }

    #[test]
    fn what_is_observed_goes_behind_results_newest_first_and_not_past_the_end() {
        let now = Instant::now();
        let said = Some(ProviderReadinessObservation::default());
        let observed = |number| SessionReadiness { number, observation: said.clone(), ..SessionReadiness::default() };
        let mut reports = registered();
        reports.readiness(observed(1));
        reports.readiness(observed(2));
        reports.result(result(1));
        assert_eq!(sent_number(reports.step(now)), 1);
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(reports.step(now), Step::Send(Report::Readiness(Box::new(observed(2)))));
        reports.readiness(observed(3));
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(reports.step(now), Step::Send(Report::Readiness(Box::new(observed(3)))));
        reports.end("gone", now);
        reports.told(Told::Again, now, 0.0);
        let later = now + LONGEST_PAUSE;
        assert_eq!(reports.step(later), Step::Send(Report::End { reason: "gone" }), "an end voids what was observed");
    }

    #[test]
    fn a_lapse_is_told_before_an_end_that_waits() {
        let now = Instant::now();
        let lapse = SessionReadiness { number: 2, ..SessionReadiness::default() };
        let mut reports = registered();
        reports.readiness(lapse.clone());
        reports.end("draining", now + Duration::from_secs(3));
        assert_eq!(reports.step(now), Step::Send(Report::Readiness(Box::new(lapse))));
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(reports.step(now), Step::Wait(Some(now + Duration::from_secs(3))));
    }

    #[test]
    fn the_end_comes_last_and_once() {
        let now = Instant::now();
        let mut reports = registered();
        reports.result(result(1));
        reports.end("first", now + Duration::from_secs(2));
        reports.end("second", now);
        reports.result(result(2));
        assert_eq!(sent_number(reports.step(now)), 1);
        reports.told(Told::Refused, now, 0.0);
        let until = now + Duration::from_secs(2);
        assert_eq!(reports.step(now), Step::Wait(Some(until)));
        assert_eq!(reports.step(until), Step::Send(Report::End { reason: "first" }));
        reports.told(Told::Recorded, now, 0.0);
        assert_eq!(reports.step(now), Step::Finished);
    }

    #[test]
    fn a_session_that_was_superseded_owes_nothing() {
        let now = Instant::now();
        let mut reports = registered();
        reports.result(result(1));
        reports.step(now);
        assert!(reports.told(Told::NotTheSession, now, 0.0));
        reports.end("superseded", now);
        assert_eq!(reports.step(now), Step::Finished);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Result,
        End,
        Told(Told),
        Pass(u64),
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => Just(Event::Result),
            1 => Just(Event::End),
            4 => proptest::sample::select(vec![Told::Recorded, Told::Again, Told::Refused]).prop_map(Event::Told),
            2 => (0_u64..20).prop_map(Event::Pass),
        ]
    }

    proptest! {
        #[test]
        fn numbers_never_fall_and_the_newest_result_gets_through(events in proptest::collection::vec(any_event(), 1..80)) {
            let mut now = Instant::now();
            let mut reports = registered();
            let (mut made, mut last_sent, mut recorded, mut in_flight, mut ended) = (0, 0, 0, None, false);
            let mut run = |event: Event, now: &mut Instant| {
                match event {
                    Event::Result => {
                        made += u64::from(!ended);
                        reports.result(result(made));
                    }
                    Event::End => {
                        ended = true;
                        reports.end("over", *now);
                    }
                    Event::Told(told) => {
                        if let (Told::Recorded | Told::Refused, Some(number)) = (told, in_flight) {
                            recorded = number;
                        }
                        if reports.flight.is_some() {
                            in_flight = None;
                        }
                        reports.told(told, *now, 0.5);
                    }
                    Event::Pass(seconds) => *now += Duration::from_secs(seconds),
                }
                match reports.step(*now) {
                    Step::Send(Report::Result(sent)) => {
                        assert!(sent.number >= last_sent, "never older after newer");
                        last_sent = sent.number;
                        in_flight = Some(sent.number);
                    }
                    Step::Send(Report::Readiness(_)) => panic!("nothing was observed"),
                    Step::Send(Report::End { .. }) => assert_eq!(recorded, made, "the end goes last"),
                    Step::Wait(_) | Step::Finished => {}
                }
                (reports.owes(), recorded, made)
            };
            for event in events {
                run(event, &mut now);
            }
            run(Event::End, &mut now);
            for _ in 0..6 {
                run(Event::Pass(20), &mut now);
                run(Event::Told(Told::Recorded), &mut now);
            }
            let (owes, recorded, made) = run(Event::Pass(0), &mut now);
            prop_assert!(!owes);
            prop_assert_eq!(recorded, made);
        }
    }
}
