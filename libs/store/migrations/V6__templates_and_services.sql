-- Workload templates and services. Neither leaves a mark: no snapshot and no projection shows them, readers ask
-- Postgres. Each is part of what keeps a workspace from being deleted.

-- In the lock order behind members, in front of providers. Rows never change.
CREATE TABLE roadstead.workload_template (
    id               uuid PRIMARY KEY,
    workspace_id     uuid NOT NULL,
    workspace_name   text NOT NULL,
    name             text NOT NULL,
    labels           jsonb NOT NULL DEFAULT '{}',
    annotations      json NOT NULL DEFAULT '{}',
    resource_version bigint NOT NULL DEFAULT 1,
    created_at       timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    -- An encoded message of the public API.
    spec             bytea NOT NULL DEFAULT '',
    CONSTRAINT workload_template_name UNIQUE (workspace_name, name),
    CONSTRAINT workload_template_workspace FOREIGN KEY (workspace_id, workspace_name)
        REFERENCES roadstead.workspace (id, name)
);
CREATE INDEX workload_template_of_workspace ON roadstead.workload_template (workspace_id);
CREATE INDEX workload_template_page ON roadstead.workload_template (workspace_name, created_at, name, id);
CREATE INDEX workload_template_page_all ON roadstead.workload_template (created_at, name, workspace_name, id);

-- What a sandbox was made from: an encoded message of the public API, written once.
ALTER TABLE roadstead.sandbox ADD COLUMN created_from bytea;

-- Guarded by the lock of their sandbox, and gone with it. Names are copied from its row: they never change.
CREATE TABLE roadstead.service_endpoint (
    id                 uuid PRIMARY KEY,
    sandbox_id         uuid NOT NULL CONSTRAINT service_endpoint_sandbox REFERENCES roadstead.sandbox ON DELETE CASCADE,
    workspace_name     text NOT NULL,
    sandbox_name       text NOT NULL,
    -- Empty for the one service of a sandbox that has no name.
    service            text NOT NULL,
    -- As an object: names hold no double hyphen, so it tells both apart.
    name               text NOT NULL GENERATED ALWAYS AS
        (CASE service WHEN '' THEN sandbox_name ELSE sandbox_name || '--' || service END) STORED,
    target_port        integer NOT NULL CHECK (target_port BETWEEN 1 AND 65535),
    -- 1 strip, 2 pass a bearer through
    authorization_mode smallint NOT NULL CHECK (authorization_mode IN (1, 2)),
    resource_version   bigint NOT NULL DEFAULT 1,
    created_at         timestamptz NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    CONSTRAINT service_endpoint_name UNIQUE (sandbox_id, service)
);
CREATE INDEX service_endpoint_page ON roadstead.service_endpoint (workspace_name, created_at, name, id);
-- Of one sandbox there are few, which the constraint finds.
CREATE INDEX service_endpoint_page_all ON roadstead.service_endpoint (created_at, name, workspace_name, id);

GRANT SELECT, INSERT, UPDATE, DELETE ON roadstead.workload_template, roadstead.service_endpoint TO roadstead_admission;
GRANT SELECT ON roadstead.workload_template, roadstead.service_endpoint TO roadstead_watch;
