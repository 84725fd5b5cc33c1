-- The functions of format 1.

-- Commits a group of records: all that are not refused, or nothing. Returns the refused writes; or
-- one row without a write, and commits no record, if a blob whose bytes were left out is not there.
--
-- A write is refused unless its room has its epoch and as many records as its first record has
-- before it. This holds at the commit, because the row of the room is locked by the same statement.
-- A write whose records are there already is done: its host asks again after a lost answer.
--
-- Locks are taken in one order by all hosts: blobs, then root rooms each with its child rooms, then
-- the chain, which all hosts wait for.
CREATE FUNCTION commit_group(
    blob_sha256 TEXT[], blob_bytes BYTEA[],
    -- An array of objects, the columns of `x` below.
    writes_json TEXT,
    event_write BIGINT[], event_room TEXT[], event_seq BIGINT[], event_at BIGINT[], event_kind TEXT[],
    event_principal TEXT[], event_rules BIGINT[], event_body TEXT[], event_parts TEXT[],
    event_hash BYTEA[], event_epoch BIGINT[],
    -- The root rooms that `owner` no longer runs, with the epochs by which it owned them.
    released TEXT[], released_epoch BIGINT[], owner TEXT
) RETURNS TABLE (refused BIGINT, next_seq BIGINT, room_epoch BIGINT, place_epoch BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    w RECORD;
    e RECORD;
    found_epoch BIGINT;
    found_records BIGINT;
    accepted BIGINT[] := '{}';
    line_number BIGINT;
    line BYTEA;
    room_bytes BYTEA;
BEGIN
    IF cardinality(blob_sha256) > 0 THEN
        -- Retention locks the table against this before it looks for blobs that nobody refers to.
        LOCK TABLE conclave.blobs IN ROW EXCLUSIVE MODE;
        UPDATE conclave.blobs AS b SET stored = now()
            WHERE b.sha256 = ANY (blob_sha256) AND b.stored < now() - INTERVAL '10 minutes';
        INSERT INTO conclave.blobs (sha256, length, bytes)
            SELECT n.sha256, octet_length(n.bytes), n.bytes
            FROM unnest(blob_sha256, blob_bytes) AS n (sha256, bytes)
            WHERE n.bytes IS NOT NULL ORDER BY n.sha256
            ON CONFLICT DO NOTHING;
        -- Those without bytes were stored before, by what their host knows.
        IF EXISTS (SELECT 1 FROM unnest(blob_sha256, blob_bytes) AS n (sha256, bytes)
            WHERE n.bytes IS NULL AND NOT EXISTS (SELECT 1 FROM conclave.blobs AS b WHERE b.sha256 = n.sha256))
        THEN
            refused := NULL;
            RETURN NEXT;
            RETURN;
        END IF;
    END IF;
    FOR w IN
        SELECT split_part(x.room, '/', 1) AS run, x.*
        FROM jsonb_to_recordset(writes_json::JSONB) AS x (
            index BIGINT, room TEXT, epoch BIGINT, first BIGINT, next BIGINT, last_event BIGINT,
            started BIGINT, at BIGINT, spent TEXT, turns BIGINT, tokens BIGINT, cost BIGINT,
            principal TEXT, entry TEXT, agents TEXT, text TEXT, inbound TEXT,
            durability TEXT, config TEXT, command TEXT, locked BIGINT, approvals TEXT, questions TEXT,
            pool TEXT, begins BIGINT, is_over BOOLEAN, status TEXT, reason TEXT,
            calls_over BIGINT[], waits_over TEXT[], timers_over BIGINT[], waits JSONB, timers JSONB)
        ORDER BY split_part(x.room, '/', 1) COLLATE "C", x.room COLLATE "C", x.index
    LOOP
        -- The run's epoch is that of its root room. A child room cannot be opened under another.
        IF w.room <> w.run THEN
            SELECT r.epoch INTO found_epoch FROM conclave.rooms AS r WHERE r.room = w.run FOR NO KEY UPDATE;
            IF found_epoch IS DISTINCT FROM w.epoch THEN
                refused := w.index; next_seq := 0; room_epoch := found_epoch; place_epoch := NULL;
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        IF w.first = 0 THEN
            INSERT INTO conclave.rooms (room, run, parent, started, changed, entry, agents, text, turns, tokens,
                cost_micro_usd, spent, records, durability, config, command, locked, principal, approvals,
                questions, epoch, host, pool, wake_at)
            VALUES (w.room, w.run, nullif(regexp_replace(w.room, '/[^/]*$', ''), w.room), w.started, w.at,
                w.entry, w.agents, w.text, 0, 0, 0, '{}', 0, w.durability, w.config, w.command, w.locked,
                w.principal, w.approvals, w.questions, w.epoch,
                CASE WHEN w.room = w.run THEN owner END, CASE WHEN w.room = w.run THEN w.pool END,
                CASE WHEN w.room = w.run THEN 0 END)
            ON CONFLICT (room) DO NOTHING;
        END IF;
        UPDATE conclave.rooms AS r SET
            records = w.next, changed = coalesce(w.at, r.changed),
            turns = coalesce(w.turns, r.turns), tokens = coalesce(w.tokens, r.tokens),
            cost_micro_usd = coalesce(w.cost, r.cost_micro_usd), spent = coalesce(w.spent, r.spent),
            text = CASE WHEN r.text = '' THEN coalesce(w.inbound, '') ELSE r.text END,
            -- An ended room that begins another run is open again.
            started = coalesce(w.begins, r.started),
            durability = CASE WHEN w.begins IS NULL THEN r.durability ELSE w.durability END,
            config = CASE WHEN w.begins IS NULL THEN r.config ELSE w.config END,
            command = CASE WHEN w.begins IS NULL THEN r.command ELSE w.command END,
            locked = CASE WHEN w.begins IS NULL THEN r.locked ELSE w.locked END,
            approvals = CASE WHEN w.begins IS NULL THEN r.approvals ELSE w.approvals END,
            questions = CASE WHEN w.begins IS NULL THEN r.questions ELSE w.questions END,
            pool = CASE WHEN w.begins IS NULL THEN r.pool WHEN w.room = w.run THEN w.pool END,
            -- One write can both begin a run and end it.
            ended = CASE WHEN w.status IS NOT NULL THEN w.at WHEN w.begins IS NULL THEN r.ended END,
            reason = CASE WHEN w.status IS NOT NULL THEN w.reason WHEN w.begins IS NULL THEN r.reason END,
            status = CASE WHEN w.status IS NOT NULL THEN w.status WHEN w.begins IS NULL THEN r.status END
        WHERE r.room = w.room AND r.epoch = w.epoch AND r.records = w.first;
        IF NOT FOUND THEN
            -- A transaction that changes nothing does not wait for a standby, and an earlier attempt
            -- of the same write may have been cut off from it.
            UPDATE conclave.rooms AS r SET changed = r.changed WHERE r.room = w.room
                RETURNING r.epoch, r.records INTO found_epoch, found_records;
            refused := w.index; next_seq := coalesce(found_records, 0); room_epoch := found_epoch;
            -- The record in the place of the first one, unless the last one is another than sent.
            SELECT o.epoch INTO place_epoch FROM conclave.events AS o
                WHERE o.room = w.room AND o.seq = w.first AND EXISTS (SELECT 1 FROM conclave.events AS l
                    WHERE l.room = w.room AND l.seq = w.next - 1 AND l.hash = event_hash[w.last_event]);
            RETURN NEXT;
            CONTINUE;
        END IF;
        accepted := accepted || w.index;
        PERFORM conclave.change_pending_work(w.room, w.is_over, w.calls_over, w.waits_over, w.timers_over, w.waits, w.timers);
    END LOOP;
    IF cardinality(released) > 0 THEN
        -- With another epoch the run was taken again since, even if by this host.
        UPDATE conclave.rooms AS r SET host = NULL FROM unnest(released, released_epoch) AS n (room, epoch)
            WHERE r.room = n.room AND r.host = owner AND r.epoch = n.epoch;
    END IF;
    IF cardinality(accepted) = 0 THEN
        RETURN;
    END IF;
    SELECT c.number, c.hash INTO STRICT line_number, line FROM conclave.chain AS c FOR NO KEY UPDATE;
    FOR e IN
        SELECT * FROM unnest(event_write, event_room, event_seq, event_at, event_kind, event_principal,
            event_rules, event_body, event_parts, event_hash, event_epoch)
            WITH ORDINALITY AS n (write, room, seq, at, kind, principal, rules, body, parts, hash, epoch, place)
        WHERE n.write = ANY (accepted) ORDER BY n.place
    LOOP
        line_number := line_number + 1;
        room_bytes := convert_to(e.room, 'UTF8');
        line := sha256(line || int8send(line_number) || int8send(octet_length(room_bytes)) || room_bytes
            || int8send(e.seq) || int8send(e.at) || e.hash);
        INSERT INTO conclave.events (number, room, seq, at, kind, principal, rules, body, parts, hash, epoch)
            VALUES (line_number, e.room, e.seq, e.at, e.kind, e.principal, e.rules, e.body, e.parts, e.hash, e.epoch);
        INSERT INTO conclave.audit (number, room, seq, at, record, hash)
            VALUES (line_number, e.room, e.seq, e.at, e.hash, line);
    END LOOP;
    UPDATE conclave.chain AS c SET number = line_number, hash = line;
END $$;

-- Changes the lists of what a room waits for.
CREATE FUNCTION change_pending_work(
    of_room TEXT, is_over BOOLEAN, calls_over BIGINT[], waits_over TEXT[], timers_over BIGINT[],
    new_waits JSONB, new_timers JSONB
) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    IF is_over THEN
        DELETE FROM conclave.waits WHERE room = of_room;
        DELETE FROM conclave.timers WHERE room = of_room;
    END IF;
    IF calls_over IS NOT NULL THEN
        DELETE FROM conclave.waits WHERE room = of_room AND call = ANY (calls_over);
    END IF;
    IF waits_over IS NOT NULL THEN
        DELETE FROM conclave.waits WHERE room = of_room AND key = ANY (waits_over);
    END IF;
    IF timers_over IS NOT NULL THEN
        DELETE FROM conclave.timers WHERE room = of_room AND timer = ANY (timers_over);
    END IF;
    IF new_waits IS NOT NULL THEN
        INSERT INTO conclave.waits (room, key, call, kind, target, since)
            SELECT of_room, n.key, n.call, n.kind, n.target, n.since
            FROM jsonb_to_recordset(new_waits) AS n (key TEXT, call BIGINT, kind TEXT, target TEXT, since BIGINT)
            ON CONFLICT (room, key) DO UPDATE SET call = EXCLUDED.call, kind = EXCLUDED.kind,
                target = EXCLUDED.target, since = EXCLUDED.since, request = NULL;
    END IF;
    IF new_timers IS NOT NULL THEN
        INSERT INTO conclave.timers (room, timer, at, since)
            SELECT of_room, n.timer, n.at, n.since
            FROM jsonb_to_recordset(new_timers) AS n (timer BIGINT, at BIGINT, since BIGINT)
            ON CONFLICT (room, timer) DO UPDATE SET at = EXCLUDED.at, since = EXCLUDED.since;
    END IF;
END $$;

-- Takes a run for a host, unless another one with a lease has it, and gives it the next epoch.
-- Returns the epoch, or the other host; no row if there is no such run.
CREATE FUNCTION take_run(of_run TEXT, taker TEXT)
RETURNS TABLE (owner TEXT, new_epoch BIGINT)
LANGUAGE plpgsql AS $$
DECLARE
    now_has RECORD;
BEGIN
    SELECT r.host, r.epoch INTO now_has FROM conclave.rooms AS r WHERE r.room = of_run FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF now_has.host <> taker AND EXISTS (SELECT 1 FROM conclave.hosts AS h WHERE h.host = now_has.host AND h.until > clock_timestamp())
    THEN
        owner := now_has.host;
        RETURN NEXT;
        RETURN;
    END IF;
    new_epoch := now_has.epoch + 1;
    UPDATE conclave.rooms AS r SET host = taker, wake_at = 0 WHERE r.room = of_run;
    -- Child rooms that have ended too: the host before may not know it.
    UPDATE conclave.rooms AS r SET epoch = new_epoch WHERE r.run = of_run;
    RETURN NEXT;
END $$;

-- Gives a run back that a host owned by an epoch, or only claimed if the epoch is NULL.
CREATE FUNCTION give_back(of_run TEXT, owner TEXT, by_epoch BIGINT, wakes_at BIGINT, is_asleep BIGINT)
RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    -- Locked before the messages are looked at: whoever sends one changes this row too, so that a
    -- message is either seen here or wakes the run afterwards.
    PERFORM 1 FROM conclave.rooms AS r WHERE r.room = of_run FOR NO KEY UPDATE;
    UPDATE conclave.rooms AS r SET host = NULL,
        -- A message that nobody can read, or to a room that has ended, wakes nobody.
        -- Nor does any wake a run that rests because it could not go on.
        wake_at = CASE WHEN is_asleep = 1 AND EXISTS (
            SELECT 1 FROM conclave.inbox AS i JOIN conclave.rooms AS o ON o.room = i.room
            WHERE split_part(i.room, '/', 1) = of_run AND i.state <> 2 AND o.ended IS NULL)
        THEN 0 ELSE wakes_at END
    WHERE r.room = of_run AND (r.host IS NULL OR r.host = owner)
        AND (r.epoch = by_epoch OR (by_epoch IS NULL AND r.host = owner));
END $$;

-- Sets a value unless it would exceed the quota; returns whether it was set.
CREATE FUNCTION kv_set(
    of_home TEXT, of_plugin TEXT, of_manifest TEXT, new_key BYTEA, new_value BYTEA, most_bytes BIGINT, most_keys BIGINT
) RETURNS BOOLEAN
LANGUAGE plpgsql AS $$
DECLARE
    now_used RECORD;
    old_weight BIGINT;
    new_weight BIGINT := octet_length(new_key) + octet_length(new_value);
BEGIN
    INSERT INTO conclave.used (home, plugin, manifest, keys, bytes)
        VALUES (of_home, of_plugin, of_manifest, 0, 0) ON CONFLICT DO NOTHING;
    -- Held to the end: check and change are one step for all hosts.
    SELECT u.keys, u.bytes INTO STRICT now_used FROM conclave.used AS u
        WHERE u.home = of_home AND u.plugin = of_plugin AND u.manifest = of_manifest FOR NO KEY UPDATE;
    SELECT octet_length(k.key) + octet_length(k.value) INTO old_weight FROM conclave.kv AS k
        WHERE k.home = of_home AND k.plugin = of_plugin AND k.manifest = of_manifest AND k.key = new_key;
    -- A change that shrinks a value always fits.
    IF (old_weight IS NULL OR new_weight > old_weight)
        AND (now_used.bytes - coalesce(old_weight, 0) + new_weight > most_bytes
            OR now_used.keys + CASE WHEN old_weight IS NULL THEN 1 ELSE 0 END > most_keys)
    THEN
        RETURN false;
    END IF;
    INSERT INTO conclave.kv (home, plugin, manifest, key, value)
        VALUES (of_home, of_plugin, of_manifest, new_key, new_value)
        ON CONFLICT (home, plugin, manifest, key) DO UPDATE SET value = EXCLUDED.value;
    UPDATE conclave.used AS u SET bytes = u.bytes - coalesce(old_weight, 0) + new_weight,
            keys = u.keys + CASE WHEN old_weight IS NULL THEN 1 ELSE 0 END
        WHERE u.home = of_home AND u.plugin = of_plugin AND u.manifest = of_manifest;
    RETURN true;
END $$;

CREATE FUNCTION kv_delete(of_home TEXT, of_plugin TEXT, of_manifest TEXT, old_key BYTEA)
RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    old_weight BIGINT;
BEGIN
    -- The totals first, in the order of `kv_set`.
    PERFORM 1 FROM conclave.used AS u
        WHERE u.home = of_home AND u.plugin = of_plugin AND u.manifest = of_manifest FOR NO KEY UPDATE;
    DELETE FROM conclave.kv AS k
        WHERE k.home = of_home AND k.plugin = of_plugin AND k.manifest = of_manifest AND k.key = old_key
        RETURNING octet_length(k.key) + octet_length(k.value) INTO old_weight;
    IF old_weight IS NOT NULL THEN
        UPDATE conclave.used AS u SET bytes = u.bytes - old_weight, keys = u.keys - 1
            WHERE u.home = of_home AND u.plugin = of_plugin AND u.manifest = of_manifest;
    END IF;
END $$;
