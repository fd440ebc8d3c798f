-- What is there from the first start.
INSERT INTO roadstead.epoch (value) VALUES (1);
INSERT INTO roadstead.settings_revision (scope, revision) VALUES ('00000000-0000-0000-0000-000000000000', 0);
INSERT INTO roadstead.workspace (id, name) VALUES (gen_random_uuid(), 'default');
