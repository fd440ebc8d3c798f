//! The public API, version 0.1.5, as Rust types: one module per protobuf package.
//!
//! Maps are ordered, so that equal messages have equal bytes. Messages with secret fields print only their name.

/// All protocol files, public and internal, as an encoded `FileDescriptorSet` with comments.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

pub use generated::openshell::datamodel::v1 as datamodel;
pub use generated::openshell::options::v1 as options;
pub use generated::openshell::sandbox::v1 as sandbox;
pub use generated::openshell::v1;

/// Gives a type with secrets a `Debug` that shows none of its fields.
macro_rules! redacted {
    ($type:path, $name:literal) => {
        impl ::core::fmt::Debug for $type {
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                formatter.debug_struct($name).finish_non_exhaustive()
            }
        }
    };
}

/// The packages as they nest in protobuf; generated types refer to each other through this nesting.
#[allow(clippy::all, missing_debug_implementations, unreachable_pub, rust_2018_idioms)]
pub(crate) mod generated {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
    include!(concat!(env!("OUT_DIR"), "/redacted.rs"));
}
