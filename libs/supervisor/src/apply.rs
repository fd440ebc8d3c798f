//! Applying: each half becomes one file, written whole and put in place in one step.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use roadstead_proto::api::FILE_DESCRIPTOR_SET;
use roadstead_proto::api::sandbox::SandboxConfigSnapshot;
use roadstead_proto::api::v1::ProviderEnvironmentSnapshot;

/// Name of the file that holds the configuration, as the protocol's JSON.
pub const CONFIG_FILE: &str = "config.json";
/// Name of the file that holds the environment, as the protocol's JSON; mode 0600.
pub const ENVIRONMENT_FILE: &str = "environment.json";

/// Why something could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    /// The content has no JSON form, such as a time out of range. Its text is not told: it may be secret.
    #[error("the content cannot be written as JSON")]
    Unwritable,
    /// The compiled-in descriptors are unusable.
    #[error("the compiled-in descriptors are unusable")]
    Descriptors,
}

/// A folder with what is in effect.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    config: MessageDescriptor,
    environment: MessageDescriptor,
}

impl Store {
    /// Opens the folder, and makes it, for its owner only, if it is not there.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, StoreError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| StoreError::File { path: folder.clone(), source })?;
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|_| StoreError::Descriptors)?;
        let find = |name| pool.get_message_by_name(name).ok_or(StoreError::Descriptors);
        let config = find("openshell.sandbox.v1.SandboxConfigSnapshot")?;
        let environment = find("openshell.v1.ProviderEnvironmentSnapshot")?;
        Ok(Self { folder, config, environment })
    }

    /// Puts a configuration into effect.
    pub(crate) fn install_config(&self, config: &SandboxConfigSnapshot) -> Result<(), StoreError> {
        self.install(CONFIG_FILE, &self.config, config, 0o644)
    }

    /// Puts an environment into effect.
    pub(crate) fn install_environment(&self, environment: &ProviderEnvironmentSnapshot) -> Result<(), StoreError> {
        self.install(ENVIRONMENT_FILE, &self.environment, environment, 0o600)
    }

    /// Leaves no configuration in effect, so that nothing is allowed. The environment stays: without a policy it serves
    /// nobody, and the server rightly believes that it is there.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        let path = self.folder.join(CONFIG_FILE);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(StoreError::File { path, source }),
            _ => Ok(()),
        }
    }

    fn install(
        &self,
        name: &str,
        descriptor: &MessageDescriptor,
        message: &impl Message,
        mode: u32,
    ) -> Result<(), StoreError> {
        let mut dynamic = DynamicMessage::new(descriptor.clone());
        dynamic.transcode_from(message).map_err(|_| StoreError::Unwritable)?;
        let mut json = Vec::new();
        let mut serializer = serde_json::Serializer::pretty(&mut json);
        let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
        dynamic.serialize_with_options(&mut serializer, &options).map_err(|_| StoreError::Unwritable)?;
        let path = self.folder.join(name);
        write_whole(&path, &json, mode).map_err(|source| StoreError::File { path, source })
    }
}

/// Writes a file so that a reader sees the old content or the new one, never a part, also after a crash.
pub(crate) fn write_whole(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    // One that a crash left behind may have other permissions.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use roadstead_proto::api::v1::ProviderEnvironmentValue;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn each_half_is_one_file_and_secrets_are_the_owners() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("in/here")).unwrap();
        let config = SandboxConfigSnapshot { version: 3, config_revision: u64::MAX, ..Default::default() };
        let value = ProviderEnvironmentValue { name: "KEY".into(), value: "hush".into(), ..Default::default() };
        store.install_config(&config).unwrap();
        store.install_environment(&ProviderEnvironmentSnapshot { values: vec![value], ..Default::default() }).unwrap();

        let read = |name: &str| fs::read_to_string(store.folder.join(name)).unwrap();
        let config: serde_json::Value = serde_json::from_str(&read(CONFIG_FILE)).unwrap();
        assert_eq!((config["version"].as_u64(), config["config_revision"].as_u64()), (Some(3), Some(u64::MAX)));
        let environment: serde_json::Value = serde_json::from_str(&read(ENVIRONMENT_FILE)).unwrap();
        assert_eq!(environment["values"][0]["value"], "hush");
        assert_eq!(mode(&store.folder.join(ENVIRONMENT_FILE)), 0o600);
        assert_eq!(mode(&store.folder), 0o700);

        store.close().unwrap();
        store.close().unwrap();
        let left: Vec<_> = fs::read_dir(&store.folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [ENVIRONMENT_FILE]);
    }

    #[test]
    fn what_a_crash_left_behind_is_replaced_with_the_right_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let beside = folder.path().join("secret.new");
        fs::write(&beside, "half").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o666)).unwrap();
        write_whole(&path, b"whole", 0o600).unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"whole"[..], 0o600));
        assert!(!beside.exists());
    }
}
