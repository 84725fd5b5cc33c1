-- Format 1. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE rooms (
    room TEXT NOT NULL PRIMARY KEY,
    run TEXT NOT NULL,
    parent TEXT,
    started INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    ended INTEGER,
    status TEXT,
    reason TEXT,
    entry TEXT NOT NULL,
    agents TEXT NOT NULL,
    text TEXT NOT NULL,
    turns INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cost_micro_usd INTEGER NOT NULL,
    spent TEXT NOT NULL,
    records INTEGER NOT NULL,
    durability TEXT NOT NULL,
    config TEXT,
    command TEXT NOT NULL,
    locked INTEGER NOT NULL,
    principal TEXT NOT NULL,
    generation INTEGER NOT NULL
) STRICT;
CREATE INDEX rooms_of_a_run ON rooms (run);

CREATE TABLE events (
    number INTEGER NOT NULL PRIMARY KEY,
    room TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    principal TEXT NOT NULL,
    rules INTEGER NOT NULL,
    body TEXT NOT NULL,
    parts TEXT,
    hash BLOB NOT NULL,
    UNIQUE (room, seq)
) STRICT;

CREATE TABLE blobs (
    sha256 TEXT NOT NULL PRIMARY KEY,
    length INTEGER NOT NULL,
    bytes BLOB NOT NULL
) STRICT;

CREATE TABLE waits (
    room TEXT NOT NULL,
    key TEXT NOT NULL,
    call INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    since INTEGER NOT NULL,
    request TEXT,
    PRIMARY KEY (room, key)
) STRICT;

CREATE TABLE timers (
    room TEXT NOT NULL,
    timer INTEGER NOT NULL,
    at INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (room, timer)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    number INTEGER NOT NULL PRIMARY KEY,
    room TEXT NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    record BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE removed (
    run TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
