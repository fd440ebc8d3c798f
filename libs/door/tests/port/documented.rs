//! The documentation says what the limits are.

use roadstead_door::listener::{CONNECTION_WINDOW, ERRORS, HEADERS, PENDING_RESETS, STREAM_WINDOW};
use roadstead_door::{Limits, PIECE, drain};
use roadstead_service_kit::admin;

use crate::world::settings;

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

#[test]
fn the_table_of_limits_says_what_they_are() {
    let (port, front) = (settings(), Limits::default());
    let stall = port.ping_every + port.ping_answer;
    let rows = [
        format!(
            "| until a connection has begun (protocol, TLS), and one of HTTP/1 has had its request and answer | {:?} |",
            port.begin
        ),
        format!("| silence of a connection until its peer is asked whether it is there | {:?} |", port.ping_every),
        format!("| its time to answer | {:?} |", port.ping_answer),
        format!("| nothing is taken of what is written to a connection | {stall:?} |"),
        format!("| connections of a process | {} (", port.connections),
        format!("| open calls of a connection | {} |", port.streams),
        format!("| headers of a request | {} KiB |", HEADERS / 1024),
        format!("| calls reset by their client before they were looked at | {PENDING_RESETS} |"),
        format!("| calls reset for errors of their client | {ERRORS} |"),
        format!("| a request's message | {} KiB |", front.message / 1024),
        format!("on one call | {} KiB, {} KiB |", CONNECTION_WINDOW / 1024, STREAM_WINDOW / 1024),
        format!("| unary calls of a process | {} |", front.calls),
        format!("| streams of a process for `grpc.health.v1`, and as many for reflection | {} |", front.open_streams),
        format!(
            "| a client's time to take {} KiB of a response that is there | {:?} |",
            PIECE / 1024,
            front.piece_time
        ),
        format!("| its time to take the whole answer to a unary call | {:?} |", front.answer_time),
        format!("| responses of a process that wait for their clients | {} MiB |", front.unread / 1024 / 1024),
        format!("| connections to an admin port | {} |", admin::CONNECTIONS),
        format!("| a request there, and its answer | {} KiB, {:?} |", admin::REQUEST / 1024, admin::CONNECTION_TIME),
        format!("| calls and streams once a process stops | {:?} (", port.drain),
        format!("| over which streams end then | {:?} at the edge", drain::SPREAD),
    ];
    for row in rows.map(|row| spaced(&row)) {
        assert!(OPERATIONS.contains(&row), "the documentation does not say: {row}");
    }
}

/// Times as the documentation writes them: with a space before the unit.
fn spaced(row: &str) -> String {
    let mut written = String::new();
    for (at, letter) in row.char_indices() {
        let after_digit = row[..at].ends_with(|before: char| before.is_ascii_digit());
        if letter == 's' && after_digit {
            written.push(' ');
        }
        written.push(letter);
    }
    written
}
