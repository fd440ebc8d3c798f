//! The trace that a call belongs to.

use std::collections::HashMap;

use http::HeaderMap;
use opentelemetry::global;
use opentelemetry::propagation::Extractor;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const TRACEPARENT: &str = "traceparent";

/// A span for a call, continuing the client's trace if its headers name one.
pub(crate) fn span(headers: &HeaderMap, method: &'static str, request_id: &str) -> Span {
    let span = tracing::info_span!("call", method, request_id, otel.kind = "server");
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Headers(headers)));
    if span.set_parent(parent).is_err() {
        tracing::trace!("this call is not traced");
    }
    span
}

/// The trace context to pass on: that of the span, or the client's own where nothing is traced here.
pub(crate) fn parent_of_next(span: &Span, headers: &HeaderMap) -> String {
    let mut carrier = HashMap::new();
    global::get_text_map_propagator(|propagator| propagator.inject_context(&span.context(), &mut carrier));
    let given = || headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).filter(|value| is_traceparent(value));
    carrier.remove(TRACEPARENT).or_else(|| given().map(str::to_owned)).unwrap_or_default()
}

/// Whether this is version 00 of the header, the one that is passed on unread.
fn is_traceparent(value: &str) -> bool {
    let parts = value.split('-').map(str::len).collect::<Vec<_>>();
    parts == [2, 32, 16, 2] && value.bytes().all(|byte| byte == b'-' || matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_context_is_passed_on_unread() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(TRACEPARENT), value.parse().unwrap())]);
            parent_of_next(&Span::none(), &headers)
        };
        assert_eq!(of(good), good);
        for bad in ["", "00", &good.to_uppercase(), &good[1..], &format!("{good}-x")] {
            assert_eq!(of(bad), "", "{bad}");
        }
    }
}
