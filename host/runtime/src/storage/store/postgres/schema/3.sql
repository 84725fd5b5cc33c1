-- Format 3: large blobs in a shared folder, and attachments that no record refers to yet.

-- NULL: the bytes are a file in the shared folder.
ALTER TABLE blobs ALTER COLUMN bytes DROP NOT NULL;

-- The attachments that a host has stored, which its next records may refer to.
CREATE TABLE held_blobs (
    host TEXT COLLATE "C" NOT NULL,
    sha256 TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (host, sha256)
);

-- A number that no other store has; the shared folder has it too.
INSERT INTO meta (name, value)
    VALUES ('identity', ('x' || left(md5(gen_random_uuid()::TEXT), 16))::BIT(64)::BIGINT);
