-- Tables, in the lock order of a mutation. Names of columns appear here and in the table files of the store only.
--
-- Objects of a workspace carry its name beside its id: names never change, a foreign key keeps the pair true, and every
-- look-up by name is then one index probe in the statement that locks.

-- Ledgers -------------------------------------------------------------------------------------------------------------

-- One row for each command that reached the database. `outcome` is null only inside the transaction that inserts it.
-- Every row is written twice, so no index here or on claims may speak of what the second write changes: that write then
-- stays within the page and touches no index.
CREATE TABLE roadstead.command (
    id         uuid PRIMARY KEY,
    method     text NOT NULL,
    caller     bytea NOT NULL,
    deadline   timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- 0 started, 1 response, 2 reference, 3 refusal
    outcome    smallint CHECK (outcome BETWEEN 0 AND 3),
    replayed   boolean NOT NULL DEFAULT false,
    body       bytea NOT NULL DEFAULT '',
    settled_at timestamptz
) WITH (fillfactor = 60);
CREATE INDEX command_age ON roadstead.command (created_at);

CREATE TABLE roadstead.claim (
    caller       bytea NOT NULL,
    method       text NOT NULL,
    scope        text NOT NULL,
    request_id   uuid NOT NULL,
    format       smallint NOT NULL,
    protected    boolean NOT NULL,
    key_id       text NOT NULL,
    fingerprint  bytea NOT NULL,
    workspace_id uuid,
    command_id   uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    receipt      bytea NOT NULL DEFAULT '',
    PRIMARY KEY (caller, method, scope, request_id)
) WITH (fillfactor = 60);
CREATE INDEX claim_age ON roadstead.claim (created_at);

-- Effects that were started and have no outcome yet.
CREATE TABLE roadstead.effect (
    command_id uuid PRIMARY KEY,
    method     text NOT NULL,
    claimed    boolean NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX effect_age ON roadstead.effect (since);

CREATE TABLE roadstead.quota (
    caller bytea PRIMARY KEY,
    used   bigint NOT NULL CHECK (used >= 0)
) WITH (fillfactor = 50);

-- State ---------------------------------------------------------------------------------------------------------------

CREATE TABLE roadstead.workspace (
    id                uuid PRIMARY KEY,
    name              text NOT NULL CONSTRAINT workspace_name UNIQUE,
    labels            jsonb NOT NULL DEFAULT '{}',
    resource_version  bigint NOT NULL DEFAULT 1,
    created_at        timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    terminating_since timestamptz,
    CONSTRAINT workspace_identity UNIQUE (id, name)
);
CREATE INDEX workspace_page ON roadstead.workspace (created_at, name, id);

CREATE TABLE roadstead.member (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    workspace_name   text NOT NULL,
    subject          text NOT NULL,
    role             smallint NOT NULL CHECK (role IN (1, 2)),
    resource_version bigint NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    CONSTRAINT member_subject UNIQUE (workspace_name, subject),
    CONSTRAINT member_workspace FOREIGN KEY (workspace_id, workspace_name)
        REFERENCES roadstead.workspace (id, name) ON DELETE CASCADE
);
CREATE INDEX member_of_workspace ON roadstead.member (workspace_id);
CREATE INDEX member_page ON roadstead.member (workspace_name, created_at, subject, id);
CREATE INDEX member_by_subject ON roadstead.member (subject);

CREATE TABLE roadstead.provider (
    id                     uuid PRIMARY KEY,
    workspace_id           uuid NOT NULL,
    workspace_name         text NOT NULL,
    name                   text NOT NULL,
    kind                   text NOT NULL,
    profile_workspace      text NOT NULL DEFAULT '',
    config                 json NOT NULL DEFAULT '{}',
    -- Parallel, ordered by key. The values are encrypted before they come here.
    credential_keys        text[] NOT NULL DEFAULT '{}',
    credential_values      bytea[] NOT NULL DEFAULT '{}',
    credential_expirations timestamptz[] NOT NULL DEFAULT '{}',
    labels                 jsonb NOT NULL DEFAULT '{}',
    annotations            json NOT NULL DEFAULT '{}',
    resource_version       bigint NOT NULL DEFAULT 1,
    created_at             timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    CONSTRAINT provider_name UNIQUE (workspace_name, name),
    CONSTRAINT provider_workspace FOREIGN KEY (workspace_id, workspace_name) REFERENCES roadstead.workspace (id, name),
    CONSTRAINT provider_credentials CHECK (
        cardinality(credential_values) = cardinality(credential_keys)
        AND cardinality(credential_expirations) = cardinality(credential_keys)
    )
);
CREATE INDEX provider_of_workspace ON roadstead.provider (workspace_id);
CREATE INDEX provider_page ON roadstead.provider (workspace_name, created_at, name, id);
CREATE INDEX provider_page_all ON roadstead.provider (created_at, name, workspace_name, id);

CREATE TABLE roadstead.sandbox (
    id                        uuid PRIMARY KEY,
    workspace_id              uuid NOT NULL,
    workspace_name            text NOT NULL,
    name                      text NOT NULL,
    labels                    jsonb NOT NULL DEFAULT '{}',
    annotations               json NOT NULL DEFAULT '{}',
    resource_version          bigint NOT NULL DEFAULT 1,
    created_at                timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    deletion_at               timestamptz,
    -- Encoded messages of the public API.
    spec                      bytea NOT NULL DEFAULT '',
    status                    bytea NOT NULL DEFAULT '',
    phase                     smallint NOT NULL,
    current_policy_version    bigint NOT NULL DEFAULT 0,
    attachment_epoch          uuid NOT NULL,
    generation                bigint NOT NULL DEFAULT 1,
    provisioning_deadline     timestamptz,
    configuration_instance_id text NOT NULL DEFAULT '',
    session_id                uuid,
    session_bridge_id         uuid,
    session_instance_id       text NOT NULL DEFAULT '',
    session_epoch             bigint NOT NULL DEFAULT 0,
    session_config_push       boolean NOT NULL DEFAULT false,
    session_result_number     bigint NOT NULL DEFAULT 0,
    session_end_number        bigint NOT NULL DEFAULT 0,
    CONSTRAINT sandbox_name UNIQUE (workspace_name, name),
    CONSTRAINT sandbox_workspace FOREIGN KEY (workspace_id, workspace_name) REFERENCES roadstead.workspace (id, name),
    CONSTRAINT sandbox_session CHECK ((session_id IS NULL) = (session_bridge_id IS NULL))
) WITH (fillfactor = 80);
CREATE INDEX sandbox_of_workspace ON roadstead.sandbox (workspace_id);
CREATE INDEX sandbox_page ON roadstead.sandbox (workspace_name, created_at, name, id);
CREATE INDEX sandbox_page_all ON roadstead.sandbox (created_at, name, workspace_name, id);
CREATE INDEX sandbox_of_bridge ON roadstead.sandbox (session_bridge_id, id) WHERE session_bridge_id IS NOT NULL;
-- PROVISIONING and STARTING.
CREATE INDEX sandbox_deadline ON roadstead.sandbox (provisioning_deadline) WHERE phase IN (1, 8);

CREATE TABLE roadstead.attachment (
    sandbox_id  uuid NOT NULL CONSTRAINT attachment_sandbox REFERENCES roadstead.sandbox ON DELETE CASCADE,
    provider_id uuid NOT NULL CONSTRAINT attachment_provider REFERENCES roadstead.provider,
    ordinal     bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (sandbox_id, provider_id)
);
CREATE INDEX attachment_of_provider ON roadstead.attachment (provider_id, sandbox_id);

-- Policies and settings: `scope` is a sandbox's id, or nil for the whole deployment.
CREATE TABLE roadstead.policy_revision (
    scope      uuid NOT NULL,
    version    bigint NOT NULL CHECK (version > 0),
    hash       text NOT NULL,
    policy     bytea NOT NULL,
    -- 1 pending, 2 loaded, 3 failed, 4 superseded
    status     smallint NOT NULL,
    load_error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    loaded_at  timestamptz,
    provenance json NOT NULL DEFAULT '{}',
    PRIMARY KEY (scope, version)
);
CREATE INDEX policy_revision_open ON roadstead.policy_revision (scope, version) WHERE status IN (1, 2);

CREATE TABLE roadstead.setting (
    scope uuid NOT NULL,
    key   text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (scope, key)
);

-- The row of the nil scope is also the lock of everything global.
CREATE TABLE roadstead.settings_revision (
    scope    uuid PRIMARY KEY,
    revision bigint NOT NULL CHECK (revision >= 0)
);

-- What the deployment knows of itself ---------------------------------------------------------------------------------

-- Which objects committed transactions changed. Rows live for milliseconds.
CREATE TABLE roadstead.outbox (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transaction_id bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    kind           text NOT NULL,
    workspace_id   uuid NOT NULL,
    object_id      uuid NOT NULL,
    configuration  boolean NOT NULL,
    traceparent    text NOT NULL DEFAULT coalesce(current_setting('roadstead.traceparent', true), ''),
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT outbox_mark UNIQUE (transaction_id, kind, object_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Draws are compared across connections, so none may keep numbers in stock.
CREATE SEQUENCE roadstead.snapshot_sequence CACHE 1;

CREATE TABLE roadstead.epoch (
    sole  boolean PRIMARY KEY DEFAULT true CHECK (sole),
    value bigint NOT NULL CHECK (value > 0)
);

-- Liveness of processes: bridges (1) and admissions (2).
CREATE TABLE roadstead.process (
    id         uuid PRIMARY KEY,
    kind       smallint NOT NULL CHECK (kind IN (1, 2)),
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    renewed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it was last judged gone, and when it was first told so.
    judged_at  timestamptz,
    told_at    timestamptz
) WITH (fillfactor = 50);
CREATE INDEX process_age ON roadstead.process (renewed_at);

-- Deliveries that no attempt could handle.
CREATE TABLE roadstead.set_aside (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject    text NOT NULL,
    reason     text NOT NULL,
    payload    bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX set_aside_age ON roadstead.set_aside (created_at);
