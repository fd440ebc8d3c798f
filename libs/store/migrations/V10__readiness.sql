-- Receipts of what was changed of a sandbox's providers, and what its session observes of itself. Neither is part of a
-- snapshot or a projection, so neither leaves a mark: whoever asks reads them.

-- Guarded by the lock of their sandbox, and gone with it; the newest of each are kept. The provider may be gone by now.
CREATE TABLE roadstead.provider_receipt (
    id               uuid PRIMARY KEY,
    ordinal          bigint GENERATED ALWAYS AS IDENTITY,
    sandbox_id       uuid NOT NULL CONSTRAINT provider_receipt_sandbox REFERENCES roadstead.sandbox ON DELETE CASCADE,
    mutation_id      uuid NOT NULL,
    -- 1 attach, 2 detach, 3 update
    kind             smallint NOT NULL CHECK (kind BETWEEN 1 AND 3),
    provider_id      uuid NOT NULL,
    provider_name    text NOT NULL,
    provider_version bigint NOT NULL,
    attachment_epoch uuid NOT NULL,
    persisted_at     timestamptz NOT NULL
);
CREATE INDEX provider_receipt_of_sandbox ON roadstead.provider_receipt (sandbox_id, ordinal);

-- What the sandbox's newest session said last. The numbers begin anew with each session.
CREATE TABLE roadstead.observation (
    sandbox_id          uuid PRIMARY KEY CONSTRAINT observation_sandbox REFERENCES roadstead.sandbox ON DELETE CASCADE,
    session_id          uuid NOT NULL,
    -- Whether its supervisor said at the beginning that it observes the readiness of providers.
    readiness_announced boolean NOT NULL,
    readiness_number    bigint NOT NULL DEFAULT 0,
    -- An encoded message of the public API; null before the first, and while what was said is too old to count.
    readiness           bytea,
    readiness_at        timestamptz NOT NULL,
    endpoint_sequence   bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70);

GRANT SELECT, INSERT, UPDATE, DELETE ON roadstead.provider_receipt, roadstead.observation TO roadstead_admission;
GRANT SELECT ON roadstead.provider_receipt, roadstead.observation TO roadstead_config_snapshot;
