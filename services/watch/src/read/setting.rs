//! Global settings.

use roadstead_policy::settings;
use roadstead_proto::api::sandbox::{GetGatewayConfigRequest, GetGatewayConfigResponse, SettingValue};

use super::Call;
use crate::refusal::Refusal;

impl Call<'_> {
    /// Every registered key, with an empty value where none is set.
    pub(super) async fn get_gateway_config(
        &self,
        GetGatewayConfigRequest {}: GetGatewayConfigRequest,
    ) -> Result<GetGatewayConfigResponse, Refusal> {
        let stored = self.database().global_settings().await?;
        let shown = |key: &str| stored.values.get(key).cloned().unwrap_or(SettingValue { value: None });
        Ok(GetGatewayConfigResponse {
            settings: settings::keys().map(|key| (key.to_owned(), shown(key))).collect(),
            settings_revision: stored.revision,
        })
    }
}
