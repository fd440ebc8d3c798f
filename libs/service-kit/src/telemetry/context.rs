//! The W3C trace context, as it travels in envelopes and marks.

use std::collections::HashMap;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

const TRACEPARENT: &str = "traceparent";
/// Length of the header's one known version.
const LENGTH: usize = 55;

/// The `traceparent` of the current span; empty if nothing is traced.
#[must_use]
pub fn traceparent() -> String {
    let mut carrier = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
    carrier.remove(TRACEPARENT).unwrap_or_default()
}

/// Makes `span` part of the trace that `traceparent` names. Does nothing if it names none, or if nothing is traced. To
/// be called before the span is entered.
pub fn continue_trace(span: &Span, traceparent: &str) {
    if traceparent.len() != LENGTH {
        return;
    }
    let carrier = HashMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
    // An error says that nothing is traced here, or that this span was not chosen to be.
    let _not_traced = span.set_parent(TraceContextPropagator::new().extract(&carrier)).is_err();
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn traced(test: impl FnOnce()) {
        let layer = tracing_opentelemetry::layer().with_tracer(SdkTracerProvider::builder().build().tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), test);
    }

    fn trace_id(traceparent: &str) -> &str {
        traceparent.split('-').nth(1).unwrap()
    }

    #[test]
    fn a_trace_goes_on_in_another_process() {
        traced(|| {
            let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let span = tracing::info_span!("work");
            continue_trace(&span, given);
            let told = span.in_scope(traceparent);
            assert_eq!(trace_id(&told), trace_id(given));
            assert_ne!(told, given);
        });
    }

    #[test]
    fn garbage_begins_a_new_trace() {
        traced(|| {
            for garbage in ["", "00", &"x".repeat(55), &"0".repeat(10_000)] {
                let span = tracing::info_span!("work");
                continue_trace(&span, garbage);
                assert_eq!(span.in_scope(traceparent).len(), LENGTH);
            }
        });
    }

    #[test]
    fn where_nothing_is_traced_the_context_is_empty() {
        let span = tracing::info_span!("work");
        continue_trace(&span, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(span.in_scope(traceparent), "");
    }
}
