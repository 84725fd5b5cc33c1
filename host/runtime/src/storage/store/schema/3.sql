-- Format 3. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

CREATE INDEX runs_by_start ON rooms (started) WHERE parent IS NULL;
