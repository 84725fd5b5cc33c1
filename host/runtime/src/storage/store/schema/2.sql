-- Format 2. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

CREATE TABLE snapshots (
    room TEXT NOT NULL PRIMARY KEY,
    next INTEGER NOT NULL,
    body BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
