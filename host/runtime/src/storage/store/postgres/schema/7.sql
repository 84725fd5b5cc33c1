-- Format 7: a removal by retention has a line in an audit chain, and attachments are not held for ever.

-- The line that notes the removal. A run that begins again under its name can be removed again.
ALTER TABLE removed ADD COLUMN line_chain BIGINT;
ALTER TABLE removed ADD COLUMN line_number BIGINT;
ALTER TABLE removed DROP CONSTRAINT removed_pkey, ADD PRIMARY KEY (run, chain, last);
-- Those of before get one now. The bytes are those of the host (storage/store/chain.rs).
DO $$
DECLARE
    gone RECORD;
    newest RECORD;
    noted BYTEA;
    line BYTEA;
BEGIN
    FOR gone IN SELECT * FROM removed ORDER BY at, run, chain LOOP
        SELECT * INTO newest FROM chains WHERE chain = gone.chain;
        CONTINUE WHEN NOT FOUND;
        newest.number := newest.number + 1;
        noted := sha256(convert_to(format('removed %s %s %s %s', gone.chain, gone.last, gone.at, gone.run), 'UTF8'));
        line := sha256(newest.hash || int8send(newest.number) || int8send(octet_length(gone.run)::BIGINT)
            || convert_to(gone.run, 'UTF8') || int8send(gone.last) || int8send(gone.at) || noted);
        INSERT INTO audit (chain, number, room, seq, at, record, hash)
            VALUES (gone.chain, newest.number, gone.run, gone.last, gone.at, noted, line);
        UPDATE chains SET number = newest.number, hash = line WHERE chain = gone.chain;
        UPDATE removed SET line_chain = gone.chain, line_number = newest.number
            WHERE run = gone.run AND chain = gone.chain AND last = gone.last;
    END LOOP;
END $$;

-- When the host last stored it.
ALTER TABLE held_blobs ADD COLUMN since TIMESTAMPTZ NOT NULL DEFAULT now();
