-- A caller's count of claims lies in eight rows, so that its commands need not wait for each other's COMMIT, which holds
-- the row it raised until the log is on disk. Each slot takes an eighth of the quota, so all together take exactly the
-- quota: one more is raised in a slot with room that nobody holds; if there is none, each slot is waited for in turn; and
-- it is refused only once each was found full.

CREATE TABLE roadstead.quota_slot (
    caller bytea NOT NULL,
    slot   smallint NOT NULL CHECK (slot BETWEEN 0 AND 7),
    used   bigint NOT NULL CHECK (used >= 0),
    PRIMARY KEY (caller, slot)
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON roadstead.quota_slot TO roadstead_admission;

-- What a slot has of a total, spread as evenly as it goes. The parts of a total add up to it, and none is above the same
-- slot's part of a larger one.
CREATE FUNCTION roadstead.slot_part(total bigint, slot integer) RETURNS bigint LANGUAGE sql IMMUTABLE AS
    'SELECT total / 8 + CASE WHEN slot < total % 8 THEN 1 ELSE 0 END';

-- Counted from the claims themselves. The programs before this migration count elsewhere, so none may run any more.
INSERT INTO roadstead.quota_slot (caller, slot, used)
SELECT caller, slot, roadstead.slot_part(count(*), slot) FROM roadstead.claim, generate_series(0, 7) slot
GROUP BY caller, slot;
DROP TABLE roadstead.quota;
DROP FUNCTION roadstead.within_quota;

-- Locks all slots of a caller, made if need be, and says how many claims they count together. All come at once and go at
-- once; who meets those that are just going looks again.
CREATE FUNCTION roadstead.hold_slots(of_caller bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    total bigint;
    slots bigint;
BEGIN
    LOOP
        INSERT INTO roadstead.quota_slot (caller, slot, used)
        SELECT of_caller, n, 0 FROM generate_series(0, 7) n ORDER BY n ON CONFLICT DO NOTHING;
        SELECT sum(used), count(*) INTO total, slots
        FROM (SELECT used FROM roadstead.quota_slot WHERE caller = of_caller ORDER BY slot FOR UPDATE) held;
        IF slots = 8 THEN
            RETURN total;
        END IF;
    END LOOP;
END $$;

-- One claim more for a caller that may hold `most`.
CREATE FUNCTION roadstead.count_claim(of_caller bytea, most bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    total bigint;
    place integer;
BEGIN
    -- The first claim, or the quota was lowered and a slot holds more than its part, while another may have room.
    IF (SELECT count(*) FROM roadstead.quota_slot
        WHERE caller = of_caller AND used <= roadstead.slot_part(most, slot)) < 8 THEN
        total := roadstead.hold_slots(of_caller);
        IF total < most THEN
            UPDATE roadstead.quota_slot SET used = roadstead.slot_part(total + 1, slot) WHERE caller = of_caller;
            RETURN;
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'RS001', MESSAGE = 'the caller holds as many claims as it may';
    END IF;
    SELECT slot INTO place FROM roadstead.quota_slot
    WHERE caller = of_caller AND used < roadstead.slot_part(most, slot) LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        SELECT slot INTO place FROM roadstead.quota_slot
        WHERE caller = of_caller AND used < roadstead.slot_part(most, slot) ORDER BY slot LIMIT 1 FOR UPDATE;
    END IF;
    IF FOUND THEN
        UPDATE roadstead.quota_slot SET used = used + 1 WHERE caller = of_caller AND slot = place;
        RETURN;
    END IF;
    IF (SELECT count(*) FROM roadstead.quota_slot
        WHERE caller = of_caller AND used >= roadstead.slot_part(most, slot)) = 8 THEN
        RAISE EXCEPTION USING ERRCODE = 'RS001', MESSAGE = 'the caller holds as many claims as it may';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = 'the caller''s slots were changed meanwhile';
END $$;

-- So many claims fewer. What is left is spread anew; nothing is kept of a caller without any.
CREATE FUNCTION roadstead.uncount_claims(of_caller bytea, claims bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    rest bigint := roadstead.hold_slots(of_caller) - claims;
BEGIN
    IF rest > 0 THEN
        UPDATE roadstead.quota_slot SET used = roadstead.slot_part(rest, slot) WHERE caller = of_caller;
    ELSE
        DELETE FROM roadstead.quota_slot WHERE caller = of_caller;
    END IF;
END $$;
