//! The few pages that the public port serves without gRPC.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::{Map, Value};

/// How a door is.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    /// Whether new work should be sent here.
    #[serde(skip)]
    pub ready: bool,
    /// What was checked: by name, an object with at least `status`.
    pub checks: Map<String, Value>,
}

#[derive(Serialize)]
struct Page<'a> {
    status: &'a str,
    version: &'a str,
    #[serde(flatten)]
    health: &'a Health,
}

/// Answers a request that is not gRPC.
pub(crate) fn answer(
    method: &Method,
    path: &str,
    version: &str,
    health: impl FnOnce() -> Health,
) -> Response<tonic::body::Body> {
    if method != Method::GET && method != Method::HEAD {
        return page(StatusCode::METHOD_NOT_ALLOWED, Bytes::from_static(b"{\"status\":\"method not allowed\"}"));
    }
    match path {
        // Alive means only that this line runs.
        "/healthz" => page(StatusCode::OK, Bytes::from_static(b"{\"status\":\"healthy\"}")),
        "/readyz" | "/health" => {
            let health = health();
            let (code, status) = match health.ready {
                true => (StatusCode::OK, "healthy"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            };
            let text = serde_json::to_vec(&Page { status, version, health: &health }).unwrap_or_default();
            page(code, text.into())
        }
        _ => page(StatusCode::NOT_FOUND, Bytes::from_static(b"{\"status\":\"not found\"}")),
    }
}

fn page(status: StatusCode, text: Bytes) -> Response<tonic::body::Body> {
    let mut response = Response::new(tonic::body::Body::new(Full::new(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn get(path: &str, ready: bool) -> (StatusCode, Value) {
        let checks = Map::from_iter([("database".to_owned(), serde_json::json!({"status": "ok"}))]);
        let response = answer(&Method::GET, path, "1.2.3", || Health { ready, checks });
        let status = response.status();
        (status, serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap())
    }

    #[tokio::test]
    async fn readiness_is_told_by_status_and_in_words() {
        let (status, text) = get("/readyz", true).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(
            text,
            serde_json::json!({"status": "healthy", "version": "1.2.3", "checks": {"database": {"status": "ok"}}})
        );

        let (status, text) = get("/health", false).await;
        assert_eq!((status, &text["status"]), (StatusCode::SERVICE_UNAVAILABLE, &Value::from("unavailable")));
    }

    #[tokio::test]
    async fn being_alive_is_told_apart_from_being_ready() {
        assert_eq!(get("/healthz", false).await.0, StatusCode::OK);
        assert_eq!(get("/else", true).await.0, StatusCode::NOT_FOUND);
    }
}
