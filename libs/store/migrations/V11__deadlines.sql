-- Deadlines lie in the rows that they are about, each indexed, so that whoever waits for the nearest finds it by one probe.

-- What a sandbox's deadline is for follows from its phase: it ends PROVISIONING and STARTING, and restarts what is ERROR or
-- COMPLETED. The column keeps its name, by which the programs before this migration know it.
DROP INDEX roadstead.sandbox_deadline;
CREATE INDEX sandbox_deadline ON roadstead.sandbox (provisioning_deadline) WHERE provisioning_deadline IS NOT NULL;
-- Content whose rejection has been granted time for repair in this attempt.
ALTER TABLE roadstead.sandbox ADD COLUMN refused_content text NOT NULL DEFAULT '';

-- When the next credential of a provider expires. A trigger keeps it, so that plain SQL cannot forget it either. Once that
-- time has come, any update of the row moves it on to the one after and, like all updates, leaves a mark; what is built
-- after that leaves the value out.
ALTER TABLE roadstead.provider ADD COLUMN next_expiration timestamptz;
CREATE INDEX provider_expiration ON roadstead.provider (next_expiration) WHERE next_expiration IS NOT NULL;
CREATE FUNCTION roadstead.note_expiration() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.next_expiration :=
        (SELECT min(expiration) FROM unnest(NEW.credential_expirations) expiration WHERE expiration > clock_timestamp());
    RETURN NEW;
END $$;
CREATE TRIGGER note_expiration BEFORE INSERT OR UPDATE ON roadstead.provider
    FOR EACH ROW EXECUTE FUNCTION roadstead.note_expiration();
UPDATE roadstead.provider SET next_expiration = NULL WHERE credential_expirations <> '{}';
