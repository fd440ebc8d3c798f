-- What operators see of effects without an outcome, and what they did.

-- `until` is when the executor of an effect has given up at the latest; after it only an operator settles the command.
-- The default is for a program that does not know the column.
ALTER TABLE roadstead.effect
    ADD COLUMN caller     bytea NOT NULL DEFAULT '',
    ADD COLUMN scope      text NOT NULL DEFAULT '',
    ADD COLUMN request_id uuid,
    ADD COLUMN executor   uuid,
    ADD COLUMN until      timestamptz NOT NULL DEFAULT clock_timestamp() + interval '5 minutes';
CREATE INDEX effect_page ON roadstead.effect (since, command_id);
DROP INDEX roadstead.effect_age;

-- Acts of operators, kept for good: a handful, and nobody may change or remove one.
CREATE TABLE roadstead.operator_act (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    operator  text NOT NULL,
    act       text NOT NULL,
    object_id uuid NOT NULL,
    reason    text NOT NULL
);
CREATE INDEX operator_act_of ON roadstead.operator_act (object_id, id);
GRANT SELECT, INSERT ON roadstead.operator_act TO roadstead_admission;
