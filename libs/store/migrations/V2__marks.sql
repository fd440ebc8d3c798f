-- Marks: each statement that changes an object leaves one row in the outbox for it and for its transaction. Statement
-- triggers with transition tables, so that plain SQL leaves them as well; TRUNCATE, which has none, is refused.

CREATE FUNCTION roadstead.refuse_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'TRUNCATE leaves no marks; DELETE does';
END $$;

-- Workspaces and members: nothing of them is part of a configuration.

CREATE FUNCTION roadstead.mark_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox (kind, workspace_id, object_id, configuration)
    SELECT 'workspace', id, id, false FROM changed
    ON CONFLICT ON CONSTRAINT outbox_mark DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.workspace
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_workspace();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.workspace
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_workspace();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.workspace
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_workspace();

CREATE FUNCTION roadstead.mark_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox (kind, workspace_id, object_id, configuration)
    SELECT 'member', workspace_id, id, false FROM changed
    ON CONFLICT ON CONSTRAINT outbox_mark DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.member
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_member();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.member
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_member();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.member
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_member();

-- Providers: all of them is configuration, their version included.

CREATE FUNCTION roadstead.mark_provider() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox (kind, workspace_id, object_id, configuration)
    SELECT 'provider', workspace_id, id, true FROM changed
    ON CONFLICT ON CONSTRAINT outbox_mark DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.provider
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_provider();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.provider
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_provider();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.provider
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_provider();

-- Sandboxes: what a snapshot is built from is configuration, the rest is status.

CREATE FUNCTION roadstead.mark_sandbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox AS o (kind, workspace_id, object_id, configuration)
    SELECT 'sandbox', workspace_id, id, true FROM changed
    ON CONFLICT ON CONSTRAINT outbox_mark DO UPDATE SET configuration = true WHERE NOT o.configuration;
    RETURN NULL;
END $$;
CREATE FUNCTION roadstead.mark_sandbox_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox AS o (kind, workspace_id, object_id, configuration)
    SELECT 'sandbox', changed.workspace_id, changed.id,
        (changed.spec, changed.name, changed.workspace_name, changed.attachment_epoch, changed.configuration_instance_id)
        IS DISTINCT FROM
        (before.spec, before.name, before.workspace_name, before.attachment_epoch, before.configuration_instance_id)
    FROM changed LEFT JOIN before USING (id)
    ON CONFLICT ON CONSTRAINT outbox_mark DO UPDATE SET configuration = true
        WHERE excluded.configuration AND NOT o.configuration;
    RETURN NULL;
END $$;
-- Policies and settings go with their sandbox, which has no foreign key on `scope` to do it.
CREATE FUNCTION roadstead.forget_scope() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM roadstead.policy_revision WHERE scope IN (SELECT id FROM changed);
    DELETE FROM roadstead.setting WHERE scope IN (SELECT id FROM changed);
    DELETE FROM roadstead.settings_revision WHERE scope IN (SELECT id FROM changed);
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.sandbox
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_sandbox();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.sandbox
    REFERENCING OLD TABLE AS before NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_sandbox_update();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.sandbox
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_sandbox();
CREATE TRIGGER forget_scope AFTER DELETE ON roadstead.sandbox
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.forget_scope();

CREATE FUNCTION roadstead.mark_attachment() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox AS o (kind, workspace_id, object_id, configuration)
    SELECT DISTINCT 'sandbox', s.workspace_id, s.id, true
    FROM changed JOIN roadstead.sandbox s ON s.id = changed.sandbox_id
    ON CONFLICT ON CONSTRAINT outbox_mark DO UPDATE SET configuration = true WHERE NOT o.configuration;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.attachment
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_attachment();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.attachment
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_attachment();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.attachment
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_attachment();

-- Policies and settings: a mark of their sandbox, or of everything if the scope is the deployment. A sandbox that is
-- gone has left its own mark.

CREATE FUNCTION roadstead.mark_scope() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox AS o (kind, workspace_id, object_id, configuration)
    SELECT DISTINCT 'sandbox', s.workspace_id, s.id, true FROM changed JOIN roadstead.sandbox s ON s.id = changed.scope
    UNION ALL
    SELECT DISTINCT 'global', scope, scope, true FROM changed WHERE scope = '00000000-0000-0000-0000-000000000000'
    ON CONFLICT ON CONSTRAINT outbox_mark DO UPDATE SET configuration = true WHERE NOT o.configuration;
    RETURN NULL;
END $$;
-- How a revision fared is told by the sandbox's status; no snapshot shows it.
CREATE FUNCTION roadstead.mark_policy_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO roadstead.outbox AS o (kind, workspace_id, object_id, configuration)
    WITH rewritten AS (
        SELECT changed.scope FROM changed LEFT JOIN before USING (scope, version)
        WHERE (changed.policy, changed.hash) IS DISTINCT FROM (before.policy, before.hash)
    )
    SELECT DISTINCT 'sandbox', s.workspace_id, s.id, true FROM rewritten JOIN roadstead.sandbox s ON s.id = rewritten.scope
    UNION ALL
    SELECT DISTINCT 'global', scope, scope, true FROM rewritten WHERE scope = '00000000-0000-0000-0000-000000000000'
    ON CONFLICT ON CONSTRAINT outbox_mark DO UPDATE SET configuration = true WHERE NOT o.configuration;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.policy_revision
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.policy_revision
    REFERENCING OLD TABLE AS before NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_policy_update();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.policy_revision
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.setting
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.setting
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.setting
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_insert AFTER INSERT ON roadstead.settings_revision
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_update AFTER UPDATE ON roadstead.settings_revision
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();
CREATE TRIGGER mark_delete AFTER DELETE ON roadstead.settings_revision
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION roadstead.mark_scope();

DO $$
DECLARE marked text;
BEGIN
    FOREACH marked IN ARRAY ARRAY['workspace', 'member', 'provider', 'sandbox', 'attachment', 'policy_revision',
        'setting', 'settings_revision'] LOOP
        EXECUTE format('CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON roadstead.%I '
            'FOR EACH STATEMENT EXECUTE FUNCTION roadstead.refuse_truncate()', marked);
    END LOOP;
END $$;
