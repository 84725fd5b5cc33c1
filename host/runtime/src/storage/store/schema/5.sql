-- Format 5. Released: never changed again. What each column holds is said in docs/reference/journal-format.md.

ALTER TABLE rooms ADD COLUMN stopped INTEGER;
ALTER TABLE rooms ADD COLUMN questions TEXT NOT NULL DEFAULT '';
