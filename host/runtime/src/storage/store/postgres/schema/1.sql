-- Format 1 of the tables in PostgreSQL. The columns of the tables that a store in SQLite has too are
-- those of docs/reference/journal-format.md. Texts are ordered by their bytes, as there.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

CREATE TABLE rooms (
    -- The order in which rooms were opened.
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    room TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    run TEXT COLLATE "C" NOT NULL,
    parent TEXT COLLATE "C",
    started BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    ended BIGINT,
    status TEXT COLLATE "C",
    reason TEXT,
    entry TEXT COLLATE "C" NOT NULL,
    agents TEXT NOT NULL,
    text TEXT NOT NULL,
    turns BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    cost_micro_usd BIGINT NOT NULL,
    spent TEXT NOT NULL,
    records BIGINT NOT NULL,
    durability TEXT COLLATE "C" NOT NULL,
    config TEXT COLLATE "C",
    command TEXT COLLATE "C" NOT NULL,
    locked BIGINT NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL DEFAULT 0,
    approvals TEXT NOT NULL,
    questions TEXT NOT NULL,
    stopped BIGINT,
    -- Whoever appends to the room names this number. It grows whenever a host takes the run.
    epoch BIGINT NOT NULL,
    -- Only in root rooms: the host that has the run, the pool of workers that may take it, and from
    -- when on they do.
    host TEXT COLLATE "C",
    pool TEXT COLLATE "C",
    wake_at BIGINT
    -- Space for the next version of a row beside it, because most commits change one.
) WITH (fillfactor = 70);
CREATE INDEX rooms_of_a_run ON rooms (run);
CREATE INDEX runs_by_start ON rooms (started) WHERE parent IS NULL;
CREATE INDEX open_runs ON rooms (started) WHERE parent IS NULL AND status IS NULL;
CREATE INDEX runs_of_a_host ON rooms (host) WHERE host IS NOT NULL;
-- In the order in which workers take them, so that taking one does not sort those that are due.
CREATE INDEX runs_to_take ON rooms (pool, wake_at, started) WHERE parent IS NULL AND ended IS NULL;

CREATE TABLE events (
    number BIGINT NOT NULL PRIMARY KEY,
    room TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    principal TEXT COLLATE "C" NOT NULL,
    rules BIGINT NOT NULL,
    body TEXT NOT NULL,
    parts TEXT,
    hash BYTEA NOT NULL,
    epoch BIGINT NOT NULL,
    UNIQUE (room, seq)
);

CREATE TABLE blobs (
    sha256 TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    length BIGINT NOT NULL,
    bytes BYTEA NOT NULL,
    -- When a host last stored it. Retention spares those whose records may still be under way.
    stored TIMESTAMPTZ NOT NULL DEFAULT now()
);
-- Most are compressed or small, and nobody reads a part of one.
ALTER TABLE blobs ALTER COLUMN bytes SET STORAGE EXTERNAL;

CREATE TABLE waits (
    room TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    call BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    target TEXT NOT NULL,
    since BIGINT NOT NULL,
    request TEXT,
    PRIMARY KEY (room, key)
);

CREATE TABLE timers (
    room TEXT COLLATE "C" NOT NULL,
    timer BIGINT NOT NULL,
    at BIGINT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (room, timer)
);

CREATE TABLE audit (
    number BIGINT NOT NULL PRIMARY KEY,
    room TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    record BYTEA NOT NULL,
    hash BYTEA NOT NULL
);

-- One row: the newest line of the chain. Whoever appends to the chain locks it.
CREATE TABLE chain (
    number BIGINT NOT NULL,
    hash BYTEA NOT NULL
) WITH (fillfactor = 10);
INSERT INTO chain (number, hash) VALUES (0, decode(repeat('00', 32), 'hex'));

CREATE TABLE removed (
    run TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    last BIGINT NOT NULL
);

CREATE TABLE snapshots (
    room TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    next BIGINT NOT NULL,
    body BYTEA NOT NULL,
    hash BYTEA NOT NULL
);

-- The processes that run rooms. A run belongs to rooms.host only while that host's lease lasts.
CREATE TABLE hosts (
    host TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    command TEXT NOT NULL,
    pool TEXT COLLATE "C",
    -- The number of runs that it takes as a worker.
    capacity BIGINT NOT NULL,
    started TIMESTAMPTZ NOT NULL DEFAULT now(),
    until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 30);

-- Control messages to rooms, from any machine.
CREATE TABLE inbox (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    room TEXT COLLATE "C" NOT NULL,
    body TEXT NOT NULL,
    -- The call that it settles, or NULL. One message at a time settles a call.
    settles BIGINT,
    -- 0: sent, 1: a host has taken it, 2: nobody can read it.
    state BIGINT NOT NULL,
    UNIQUE (room, settles)
);
-- Whether a run that sleeps has a message.
CREATE INDEX inbox_of_a_run ON inbox ((split_part(room, '/', 1)));

-- What plugins keep from run to run. Keys are bytes, for their order.
CREATE TABLE kv (
    home TEXT COLLATE "C" NOT NULL,
    plugin TEXT COLLATE "C" NOT NULL,
    manifest TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    value BYTEA NOT NULL,
    PRIMARY KEY (home, plugin, manifest, key)
);
CREATE TABLE used (
    home TEXT COLLATE "C" NOT NULL,
    plugin TEXT COLLATE "C" NOT NULL,
    manifest TEXT COLLATE "C" NOT NULL,
    keys BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    PRIMARY KEY (home, plugin, manifest)
) WITH (fillfactor = 50);
