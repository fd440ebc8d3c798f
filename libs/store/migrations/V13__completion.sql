-- How the operation behind a receipt ended. Reached once, it stands for ever, whatever becomes of the sandbox.

ALTER TABLE roadstead.provider_receipt
    -- 1 pending, 2 applied, 3 inactive, 4 failed, 5 superseded, 6 cancelled
    ADD COLUMN operation  smallint NOT NULL DEFAULT 1 CHECK (operation BETWEEN 1 AND 6),
    -- The supervisor's word, if it was that which ended it.
    ADD COLUMN outcome    smallint NOT NULL DEFAULT 0,
    ADD COLUMN error      text NOT NULL DEFAULT '',
    ADD COLUMN settled_at timestamptz,
    ADD CONSTRAINT provider_receipt_settled CHECK ((operation = 1) = (settled_at IS NULL));
CREATE INDEX provider_receipt_pending ON roadstead.provider_receipt (sandbox_id) WHERE operation = 1;
CREATE INDEX provider_receipt_pending_of_provider ON roadstead.provider_receipt (provider_id) WHERE operation = 1;

CREATE FUNCTION roadstead.keep_the_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the operation of a receipt has ended and does not change any more';
END $$;
CREATE TRIGGER keep_the_end BEFORE UPDATE ON roadstead.provider_receipt
    FOR EACH ROW WHEN (OLD.operation <> 1) EXECUTE FUNCTION roadstead.keep_the_end();

-- A supervisor's verdict ends operations by a statement of its own. What ends them without one follows from the rows that
-- they are about, so it hangs there and no path can forget it: other attachments supersede, a deletion cancels, and
-- nobody waits for a sandbox that is stopped or completed. So what is pending is always what is desired now.
CREATE FUNCTION roadstead.end_receipts_of_sandbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE roadstead.provider_receipt
    SET operation = CASE WHEN NEW.attachment_epoch <> OLD.attachment_epoch THEN 5 WHEN NEW.phase = 4 THEN 6 ELSE 3 END,
        settled_at = date_trunc('milliseconds', clock_timestamp())
    WHERE sandbox_id = NEW.id AND operation = 1;
    RETURN NULL;
END $$;
CREATE TRIGGER end_receipts AFTER UPDATE ON roadstead.sandbox FOR EACH ROW
    WHEN (NEW.attachment_epoch <> OLD.attachment_epoch OR (NEW.phase <> OLD.phase AND NEW.phase IN (4, 7, 9)))
    EXECUTE FUNCTION roadstead.end_receipts_of_sandbox();

-- Of a provider that was detached the version says nothing any more.
CREATE FUNCTION roadstead.end_receipts_of_provider() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE roadstead.provider_receipt
    SET operation = 5, settled_at = date_trunc('milliseconds', clock_timestamp())
    WHERE provider_id = NEW.id AND kind <> 2 AND operation = 1;
    RETURN NULL;
END $$;
CREATE TRIGGER end_receipts AFTER UPDATE ON roadstead.provider FOR EACH ROW
    WHEN (NEW.resource_version <> OLD.resource_version) EXECUTE FUNCTION roadstead.end_receipts_of_provider();

WITH judged AS (
    SELECT r.id, s.phase, r.attachment_epoch <> s.attachment_epoch
        OR (r.kind <> 2 AND coalesce(p.resource_version <> r.provider_version, false)) AS superseded
    FROM roadstead.provider_receipt r JOIN roadstead.sandbox s ON s.id = r.sandbox_id
    LEFT JOIN roadstead.provider p ON p.id = r.provider_id
) UPDATE roadstead.provider_receipt r
SET operation = CASE WHEN j.superseded THEN 5 WHEN j.phase = 4 THEN 6 ELSE 3 END,
    settled_at = date_trunc('milliseconds', clock_timestamp())
FROM judged j WHERE j.id = r.id AND (j.superseded OR j.phase IN (4, 7, 9));
