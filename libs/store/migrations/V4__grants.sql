-- The roles that log in. Migrations see to it that they exist; a read-only role is read-only by what it is granted.

GRANT USAGE ON SCHEMA roadstead TO roadstead_admission, roadstead_config_snapshot, roadstead_watch;

GRANT SELECT, INSERT, UPDATE, DELETE ON
    roadstead.command, roadstead.claim, roadstead.effect, roadstead.quota,
    roadstead.workspace, roadstead.member, roadstead.provider, roadstead.sandbox, roadstead.attachment,
    roadstead.policy_revision, roadstead.setting, roadstead.settings_revision,
    roadstead.outbox, roadstead.process, roadstead.set_aside
    TO roadstead_admission;
GRANT SELECT ON roadstead.epoch TO roadstead_admission, roadstead_config_snapshot, roadstead_watch;

GRANT SELECT ON
    roadstead.workspace, roadstead.member, roadstead.provider, roadstead.sandbox, roadstead.attachment,
    roadstead.policy_revision, roadstead.setting, roadstead.settings_revision
    TO roadstead_config_snapshot;
GRANT USAGE ON SEQUENCE roadstead.snapshot_sequence TO roadstead_config_snapshot;

GRANT SELECT ON
    roadstead.workspace, roadstead.member, roadstead.sandbox, roadstead.attachment,
    roadstead.policy_revision, roadstead.setting, roadstead.settings_revision
    TO roadstead_watch;
-- All of a provider but the values of its credentials.
GRANT SELECT (id, workspace_id, workspace_name, name, kind, profile_workspace, config, credential_keys,
    credential_expirations, labels, annotations, resource_version, created_at) ON roadstead.provider TO roadstead_watch;
