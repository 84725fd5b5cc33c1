-- Format 4. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

CREATE INDEX open_runs ON rooms (started) WHERE parent IS NULL AND status IS NULL;
