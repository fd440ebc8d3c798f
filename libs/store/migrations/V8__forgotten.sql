-- A sandbox may leave thousands of policies behind, each of them large. Its deletion only notes that; they are removed a
-- few at a time. Nothing finds them meanwhile, for they are only ever looked for through their sandbox.

CREATE TABLE roadstead.forgotten (
    scope uuid PRIMARY KEY,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX forgotten_age ON roadstead.forgotten (since);
GRANT SELECT, INSERT, UPDATE, DELETE ON roadstead.forgotten TO roadstead_admission;

CREATE OR REPLACE FUNCTION roadstead.forget_scope() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.forgotten (scope)
    SELECT id FROM changed WHERE EXISTS (SELECT FROM roadstead.policy_revision WHERE scope = id);
    DELETE FROM roadstead.setting WHERE scope IN (SELECT id FROM changed);
    DELETE FROM roadstead.settings_revision WHERE scope IN (SELECT id FROM changed);
    RETURN NULL;
END $$;
