-- Format 4: the changes of runs in overlays of folders. Without it they lay on one machine.

CREATE TABLE overlays (
    run TEXT COLLATE "C" NOT NULL,
    -- The first digits of the digest of `dir`, because a path may be too long for an index.
    overlay TEXT COLLATE "C" NOT NULL,
    dir TEXT NOT NULL,
    display_path TEXT NOT NULL,
    -- Whoever changes the overlay names the next number, so that none builds on an older state, and
    -- a statement that arrives late changes nothing.
    changes BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    PRIMARY KEY (run, overlay)
);

CREATE TABLE overlay_files (
    run TEXT COLLATE "C" NOT NULL,
    overlay TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    path TEXT NOT NULL,
    change TEXT NOT NULL,
    content TEXT COLLATE "C",
    length BIGINT,
    PRIMARY KEY (run, overlay, name)
);

CREATE TABLE overlay_decisions (
    run TEXT COLLATE "C" NOT NULL,
    number BIGINT GENERATED ALWAYS AS IDENTITY,
    body TEXT NOT NULL,
    PRIMARY KEY (run, number)
);
