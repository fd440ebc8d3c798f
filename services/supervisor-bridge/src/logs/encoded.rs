//! Messages as they came, for who decodes them when it is their turn.

use bytes::{Buf as _, Bytes};
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};

/// Bytes that are read at a time.
const BUFFER: usize = 256;

/// Decodes nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded;

impl Decoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER, super::MESSAGE_BYTES)
    }
}
