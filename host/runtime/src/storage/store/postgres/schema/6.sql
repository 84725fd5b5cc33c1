-- Format 6: an order of a run's records that does not depend on chains, and of messages that does not
-- depend on the clocks of their senders.

-- The place of the record among those of the store. It grows with the commits of each run, and so
-- with `seq` in each room.
ALTER TABLE events ADD COLUMN place BIGINT;
-- A host that lost its chain has lower numbers behind higher ones, so the highest one up to each
-- record of a room counts.
UPDATE events AS e SET place = o.place FROM (
    SELECT room, seq, row_number() OVER (ORDER BY epoch, number, room, seq) AS place
    FROM (SELECT room, seq, max(epoch) OVER w AS epoch, max(number) OVER w AS number FROM events
        WINDOW w AS (PARTITION BY room ORDER BY seq)) AS r) AS o
    WHERE e.room = o.room AND e.seq = o.seq;
ALTER TABLE events ALTER COLUMN place SET NOT NULL, ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval(pg_get_serial_sequence('events', 'place'), (SELECT coalesce(max(place), 0) + 1 FROM events), false);

-- The order in which messages arrived, and when.
ALTER TABLE inbox ADD COLUMN number BIGINT;
UPDATE inbox AS i SET number = o.number
    FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM inbox) AS o WHERE i.id = o.id;
ALTER TABLE inbox ALTER COLUMN number SET NOT NULL, ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY;
SELECT setval(pg_get_serial_sequence('inbox', 'number'), (SELECT coalesce(max(number), 0) + 1 FROM inbox), false);
ALTER TABLE inbox ADD COLUMN sent TIMESTAMPTZ NOT NULL DEFAULT now();
