-- Format 2: a chain for each host that writes at the same time, in place of one for the store.

CREATE TABLE chains (
    chain BIGINT NOT NULL PRIMARY KEY,
    -- The host that appends to it. Another one may take it over once this one has no lease.
    host TEXT COLLATE "C",
    -- The newest line.
    number BIGINT NOT NULL,
    hash BYTEA NOT NULL
) WITH (fillfactor = 10);
-- The chain of format 1 is the first one, and goes on.
INSERT INTO chains (chain, number, hash) SELECT 1, number, hash FROM chain;
DROP TABLE chain;

ALTER TABLE audit ADD COLUMN chain BIGINT NOT NULL DEFAULT 1;
ALTER TABLE audit ALTER COLUMN chain DROP DEFAULT, DROP CONSTRAINT audit_pkey, ADD PRIMARY KEY (chain, number);

ALTER TABLE events ADD COLUMN chain BIGINT NOT NULL DEFAULT 1;
ALTER TABLE events ALTER COLUMN chain DROP DEFAULT, DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (chain, number);

-- A run that several hosts had has lines in several chains.
ALTER TABLE removed ADD COLUMN chain BIGINT NOT NULL DEFAULT 1;
ALTER TABLE removed ALTER COLUMN chain DROP DEFAULT, DROP CONSTRAINT removed_pkey, ADD PRIMARY KEY (run, chain);
