-- Format 4. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

ALTER TABLE rooms ADD COLUMN approvals TEXT NOT NULL DEFAULT '';
CREATE INDEX open_runs ON rooms (started) WHERE parent IS NULL AND status IS NULL;
