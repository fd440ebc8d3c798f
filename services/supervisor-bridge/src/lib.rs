//! The supervisors' door: sessions, push, answers, reports. Serves only methods a sandbox may call.

pub mod report;
pub mod slots;
