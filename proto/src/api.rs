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

#[cfg(test)]
mod tests {
    use super::v1::{CreateSshSessionResponse, ProviderResponse, TcpForwardInit};
    use super::{datamodel::Provider, v1::tcp_forward_init::Target};

    #[test]
    fn debug_output_holds_no_secret() {
        let session = CreateSshSessionResponse { token: "hush".to_owned(), ..Default::default() };
        assert_eq!(format!("{session:?}"), "CreateSshSessionResponse { .. }");

        let credentials = [("key".to_owned(), "hush".to_owned())].into();
        let provider = Some(Provider { credentials, ..Default::default() });
        let response = format!("{:?}", ProviderResponse { provider, ..Default::default() });
        assert!(response.contains("Provider { .. }") && !response.contains("hush"), "{response}");

        let init = TcpForwardInit { target: Some(Target::Ssh(Default::default())), ..Default::default() };
        assert_eq!(format!("{:?}", init.target), "Some(Target { .. })");
    }

    #[test]
    fn maps_are_ordered_so_that_bytes_are_stable() {
        use prost::Message as _;

        let entry = |name: &str| (name.to_owned(), name.to_owned());
        let there = Provider { config: [entry("a"), entry("b")].into(), ..Default::default() };
        let back = Provider { config: [entry("b"), entry("a")].into(), ..Default::default() };
        assert_eq!(there.encode_to_vec(), back.encode_to_vec());
    }
}
