//! The trace that a call belongs to.

use http::HeaderMap;
use roadstead_service_kit::telemetry::{continue_trace, traceparent};
use tracing::Span;

/// A span for a call, continuing the client's trace if its headers name one, and the trace context to pass on: that of
/// the span, or the client's own where nothing is traced here.
pub(crate) fn begin(headers: &HeaderMap, method: &'static str, request_id: &str) -> (Span, String) {
    let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).filter(|value| is_traceparent(value));
    let given = given.unwrap_or_default();
    let span = tracing::info_span!("call", method, request_id, otel.kind = "server");
    continue_trace(&span, given);
    let ours = span.in_scope(traceparent);
    let next = if ours.is_empty() { given.to_owned() } else { ours };
    (span, next)
}

/// Whether this is version 00 of the header, the one that is passed on unread.
fn is_traceparent(value: &str) -> bool {
    let parts = value.split('-').map(str::len).collect::<Vec<_>>();
    parts == [2, 32, 16, 2] && value.bytes().all(|byte| matches!(byte, b'-' | b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_context_is_passed_on_unread() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |value: &str| {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static("traceparent"), value.parse().unwrap())]);
            begin(&headers, "M", "id").1
        };
        assert_eq!(of(good), good);
        for bad in ["", "00", &good.to_uppercase(), &good[1..], &format!("{good}-x")] {
            assert_eq!(of(bad), "", "{bad}");
        }
    }
}
