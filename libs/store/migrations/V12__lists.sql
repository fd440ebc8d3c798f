-- What a page of a list costs follows the page, not the list: whatever a list is narrowed by has an index in the order of
-- that list, and how large a row is can be told without reading it.

-- One row for each label of an object that can be selected by labels, with what such lists are ordered by. `kind` is the
-- name of the object's table.
CREATE TABLE roadstead.label (
    kind           text NOT NULL,
    -- `key=value`; no key holds an equals sign.
    pair           text NOT NULL,
    -- Empty for workspaces.
    workspace_name text NOT NULL,
    created_at     timestamptz NOT NULL,
    name           text NOT NULL,
    object_id      uuid NOT NULL,
    CONSTRAINT label_page PRIMARY KEY (kind, pair, workspace_name, created_at, name, object_id)
);
CREATE INDEX label_page_all ON roadstead.label (kind, pair, created_at, name, workspace_name, object_id);

-- Of a row, so that a statement on objects without labels does not even call it. Nothing of the key but the labels ever
-- changes.
CREATE FUNCTION roadstead.index_labels() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE workspace text := '';
BEGIN
    IF TG_OP <> 'INSERT' THEN
        IF TG_TABLE_NAME <> 'workspace' THEN workspace := OLD.workspace_name; END IF;
        DELETE FROM roadstead.label l USING jsonb_each_text(OLD.labels) pair
        WHERE l.kind = TG_TABLE_NAME AND l.pair = pair.key || '=' || pair.value AND l.workspace_name = workspace
            AND l.created_at = OLD.created_at AND l.name = OLD.name AND l.object_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        IF TG_TABLE_NAME <> 'workspace' THEN workspace := NEW.workspace_name; END IF;
        INSERT INTO roadstead.label (kind, pair, workspace_name, created_at, name, object_id)
        SELECT TG_TABLE_NAME, pair.key || '=' || pair.value, workspace, NEW.created_at, NEW.name, NEW.id
        FROM jsonb_each_text(NEW.labels) pair;
    END IF;
    RETURN NULL;
END $$;

DO $$
DECLARE labelled text;
BEGIN
    FOREACH labelled IN ARRAY ARRAY['workspace', 'provider', 'sandbox', 'workload_template'] LOOP
        EXECUTE format('CREATE TRIGGER labels_insert AFTER INSERT ON roadstead.%I FOR EACH ROW '
            'WHEN (NEW.labels <> ''{}'') EXECUTE FUNCTION roadstead.index_labels()', labelled);
        EXECUTE format('CREATE TRIGGER labels_update AFTER UPDATE OF labels ON roadstead.%I FOR EACH ROW '
            'WHEN (OLD.labels <> NEW.labels) EXECUTE FUNCTION roadstead.index_labels()', labelled);
        EXECUTE format('CREATE TRIGGER labels_delete AFTER DELETE ON roadstead.%I FOR EACH ROW '
            'WHEN (OLD.labels <> ''{}'') EXECUTE FUNCTION roadstead.index_labels()', labelled);
        EXECUTE format('INSERT INTO roadstead.label SELECT %L, pair.key || ''='' || pair.value, %s, created_at, name, id '
            'FROM roadstead.%I, jsonb_each_text(labels) pair', labelled,
            CASE labelled WHEN 'workspace' THEN '''''' ELSE 'workspace_name' END, labelled);
    END LOOP;
END $$;

GRANT SELECT, INSERT, DELETE ON roadstead.label TO roadstead_admission;
GRANT SELECT ON roadstead.label TO roadstead_watch;

-- Whoever lists workspaces without being an administrator begins at the memberships, which carry the workspace's time.
ALTER TABLE roadstead.member ADD COLUMN workspace_created_at timestamptz;
UPDATE roadstead.member m SET workspace_created_at = w.created_at FROM roadstead.workspace w WHERE w.id = m.workspace_id;
ALTER TABLE roadstead.member ALTER COLUMN workspace_created_at SET NOT NULL;
CREATE FUNCTION roadstead.copy_workspace_time() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT created_at INTO NEW.workspace_created_at FROM roadstead.workspace WHERE id = NEW.workspace_id;
    RETURN NEW;
END $$;
CREATE TRIGGER workspace_time BEFORE INSERT ON roadstead.member
    FOR EACH ROW EXECUTE FUNCTION roadstead.copy_workspace_time();
DROP INDEX roadstead.member_by_subject;
CREATE INDEX member_by_subject ON roadstead.member (subject, workspace_created_at, workspace_name, workspace_id);

-- Not compressed, so that the size that is stored is the size that is sent. That holds for what is written from now on.
ALTER TABLE roadstead.workspace ALTER COLUMN labels SET STORAGE EXTERNAL;
ALTER TABLE roadstead.provider ALTER COLUMN labels SET STORAGE EXTERNAL, ALTER COLUMN annotations SET STORAGE EXTERNAL,
    ALTER COLUMN config SET STORAGE EXTERNAL;
ALTER TABLE roadstead.sandbox ALTER COLUMN labels SET STORAGE EXTERNAL, ALTER COLUMN annotations SET STORAGE EXTERNAL;
ALTER TABLE roadstead.workload_template ALTER COLUMN labels SET STORAGE EXTERNAL,
    ALTER COLUMN annotations SET STORAGE EXTERNAL;
ALTER TABLE roadstead.policy_revision ALTER COLUMN provenance SET STORAGE EXTERNAL;
