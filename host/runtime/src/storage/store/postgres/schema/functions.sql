-- The functions. Each migration makes them all anew, so a change here needs a new format.

-- Commits a group of records, or nothing: it fails with one of these codes.
--   CV001: a write is refused, because its room has not its epoch and as many records as its first
--          record has before it. At the commit this holds, because the row of the room is locked by
--          the same statement. It also refuses records that are there already.
--   CV002: the host does not have the chain, or the newest line is another one.
--   CV003: a blob whose bytes were left out is not there.
--
-- Locks are taken in one order by all hosts: blobs, then root rooms each with its child rooms, in
-- the order of `write_room`, then the chain, which is the host's own.
CREATE FUNCTION commit_group(
    blob_sha256 TEXT[], blob_bytes BYTEA[],
    -- A write of NULL leaves its column as it is. `write_changes` is what `change_room` reads.
    write_room TEXT[], write_epoch BIGINT[], write_first BIGINT[], write_next BIGINT[], write_at BIGINT[],
    write_turns BIGINT[], write_tokens BIGINT[], write_cost BIGINT[], write_spent TEXT[], write_changes TEXT[],
    event_room TEXT[], event_seq BIGINT[], event_at BIGINT[], event_kind TEXT[], event_principal TEXT[],
    event_rules BIGINT[], event_body TEXT[], event_parts TEXT[], event_hash BYTEA[], event_epoch BIGINT[],
    -- The hash of the record's line, behind this newest line of the chain.
    event_line BYTEA[], of_chain BIGINT, last_number BIGINT, last_hash BYTEA,
    -- The root rooms that `owner` no longer runs, with the epochs by which it owned them.
    released TEXT[], released_epoch BIGINT[], owner TEXT
) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    of_run TEXT;
    lines BIGINT := cardinality(event_seq);
BEGIN
    IF cardinality(blob_sha256) > 0 THEN
        PERFORM conclave.store_blobs(blob_sha256, blob_bytes);
    END IF;
    -- One after the other, because a group can have several writes to a room.
    FOR i IN 1..cardinality(write_room) LOOP
        of_run := split_part(write_room[i], '/', 1);
        -- The run's epoch is that of its root room. A child room cannot be opened under another.
        IF write_room[i] <> of_run THEN
            PERFORM 1 FROM conclave.rooms AS r WHERE r.room = of_run AND r.epoch = write_epoch[i] FOR NO KEY UPDATE;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'another host has taken run %', of_run USING ERRCODE = 'CV001';
            END IF;
        END IF;
        IF write_first[i] = 0 THEN
            PERFORM conclave.open_room(write_room[i], of_run, write_epoch[i], owner, write_at[i], write_changes[i]::JSONB);
        END IF;
        UPDATE conclave.rooms AS r SET
            records = write_next[i], changed = coalesce(write_at[i], r.changed),
            turns = coalesce(write_turns[i], r.turns), tokens = coalesce(write_tokens[i], r.tokens),
            cost_micro_usd = coalesce(write_cost[i], r.cost_micro_usd), spent = coalesce(write_spent[i], r.spent)
        WHERE r.room = write_room[i] AND r.epoch = write_epoch[i] AND r.records = write_first[i];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'room % has other records or another epoch', write_room[i] USING ERRCODE = 'CV001';
        END IF;
        IF write_changes[i] IS NOT NULL THEN
            PERFORM conclave.change_room(write_room[i], of_run, write_at[i], write_changes[i]::JSONB);
        END IF;
    END LOOP;
    IF cardinality(released) > 0 THEN
        -- With another epoch the run was taken again since, even if by this host.
        UPDATE conclave.rooms AS r SET host = NULL FROM unnest(released, released_epoch) AS n (room, epoch)
            WHERE r.room = n.room AND r.host = owner AND r.epoch = n.epoch;
    END IF;
    IF lines = 0 THEN
        RETURN;
    END IF;
    UPDATE conclave.chains AS c SET number = last_number + lines, hash = event_line[lines]
        WHERE c.chain = of_chain AND c.host = owner AND c.number = last_number AND c.hash = last_hash;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'chain % does not go on behind line %', of_chain, last_number USING ERRCODE = 'CV002';
    END IF;
    -- `place` grows from commit to commit of a run, because the rows of its rooms are locked until then.
    INSERT INTO conclave.events (chain, number, room, seq, at, kind, principal, rules, body, parts, hash, epoch)
        SELECT of_chain, last_number + n.place, n.room, n.seq, n.at, n.kind, n.principal, n.rules, n.body, n.parts, n.hash, n.epoch
        FROM unnest(event_room, event_seq, event_at, event_kind, event_principal, event_rules, event_body, event_parts,
            event_hash, event_epoch) WITH ORDINALITY
            AS n (room, seq, at, kind, principal, rules, body, parts, hash, epoch, place);
    INSERT INTO conclave.audit (chain, number, room, seq, at, record, hash)
        SELECT of_chain, last_number + n.place, n.room, n.seq, n.at, n.record, n.line
        FROM unnest(event_room, event_seq, event_at, event_hash, event_line) WITH ORDINALITY
            AS n (room, seq, at, record, line, place);
END $$;

-- The state of a room of which a write was refused: the number of its records and its epoch, and the
-- epoch of the record in the place of the write's first one if its last one is there. The epoch is
-- that of the root room, as for `commit_group`.
CREATE FUNCTION room_head(of_room TEXT, first BIGINT, last BIGINT, last_hash BYTEA)
RETURNS TABLE (next_seq BIGINT, run_epoch BIGINT, place_epoch BIGINT)
LANGUAGE plpgsql AS $$
BEGIN
    -- Changed, because a transaction that changes nothing does not wait for a standby, and the commit
    -- that wrote the records may have been cut off from it.
    UPDATE conclave.rooms AS r SET changed = r.changed WHERE r.room = of_room RETURNING r.records INTO next_seq;
    next_seq := coalesce(next_seq, 0);
    SELECT r.epoch INTO run_epoch FROM conclave.rooms AS r WHERE r.room = split_part(of_room, '/', 1);
    SELECT o.epoch INTO place_epoch FROM conclave.events AS o
        WHERE o.room = of_room AND o.seq = first AND EXISTS (SELECT 1 FROM conclave.events AS l
            WHERE l.room = of_room AND l.seq = last AND l.hash = last_hash);
    RETURN NEXT;
END $$;

-- Gives a host a chain of its own: the one that it has, or the first one that no live host has, or a
-- new one. Returns it with its newest line.
CREATE FUNCTION take_chain(taker TEXT) RETURNS TABLE (of_chain BIGINT, last_number BIGINT, last_hash BYTEA)
LANGUAGE plpgsql AS $$
BEGIN
    -- An earlier commit of the host may still have its row; it is waited for.
    RETURN QUERY SELECT f.chain, f.number, f.hash FROM conclave.chains AS f WHERE f.host = taker
        ORDER BY f.chain LIMIT 1 FOR NO KEY UPDATE;
    IF FOUND THEN
        RETURN;
    END IF;
    LOOP
        RETURN QUERY UPDATE conclave.chains AS c SET host = taker WHERE c.chain = (
            SELECT f.chain FROM conclave.chains AS f WHERE f.host IS NULL
                OR NOT EXISTS (SELECT 1 FROM conclave.hosts AS h WHERE h.host = f.host AND h.until > clock_timestamp())
            ORDER BY f.chain LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)
            RETURNING c.chain, c.number, c.hash;
        IF FOUND THEN
            RETURN;
        END IF;
        -- Not given to the host at once, because another one may add the same number.
        INSERT INTO conclave.chains (chain, number, hash)
            SELECT coalesce(max(c.chain), 0) + 1, 0, decode(repeat('00', 32), 'hex') FROM conclave.chains AS c
            ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- Stores blobs. Those without bytes were stored before, by what their host knows.
CREATE FUNCTION store_blobs(blob_sha256 TEXT[], blob_bytes BYTEA[]) RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    -- Retention locks the table against this before it looks for blobs that nobody refers to.
    LOCK TABLE conclave.blobs IN ROW EXCLUSIVE MODE;
    UPDATE conclave.blobs AS b SET stored = now()
        WHERE b.sha256 = ANY (blob_sha256) AND b.stored < now() - INTERVAL '10 minutes';
    INSERT INTO conclave.blobs (sha256, length, bytes)
        SELECT n.sha256, octet_length(n.bytes), n.bytes
        FROM unnest(blob_sha256, blob_bytes) AS n (sha256, bytes)
        WHERE n.bytes IS NOT NULL ORDER BY n.sha256
        ON CONFLICT DO NOTHING;
    IF EXISTS (SELECT 1 FROM unnest(blob_sha256, blob_bytes) AS n (sha256, bytes)
        WHERE n.bytes IS NULL AND NOT EXISTS (SELECT 1 FROM conclave.blobs AS b WHERE b.sha256 = n.sha256))
    THEN
        RAISE EXCEPTION 'a blob is not there' USING ERRCODE = 'CV003';
    END IF;
END $$;

-- Adds the row of a room, unless it is there.
CREATE FUNCTION open_room(of_room TEXT, of_run TEXT, of_epoch BIGINT, owner TEXT, now_at BIGINT, origin JSONB)
RETURNS VOID
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO conclave.rooms (room, run, parent, started, changed, entry, agents, text, turns, tokens,
        cost_micro_usd, spent, records, durability, config, command, locked, principal, approvals,
        questions, epoch, host, pool, wake_at)
    SELECT of_room, of_run, nullif(regexp_replace(of_room, '/[^/]*$', ''), of_room), x.started, now_at,
        x.entry, x.agents, x.text, 0, 0, 0, '{}', 0, x.durability, x.config, x.command, x.locked,
        x.principal, x.approvals, x.questions, of_epoch,
        CASE WHEN of_room = of_run THEN owner END, CASE WHEN of_room = of_run THEN x.pool END,
        CASE WHEN of_room = of_run THEN 0 END
    FROM jsonb_to_record(origin) AS x (
        started BIGINT, principal TEXT, entry TEXT, agents TEXT, text TEXT, durability TEXT, config TEXT,
        command TEXT, locked BIGINT, approvals TEXT, questions TEXT, pool TEXT)
    ON CONFLICT (room) DO NOTHING;
END $$;

-- Changes what few writes change in the row of a room, and its pending work.
CREATE FUNCTION change_room(of_room TEXT, of_run TEXT, now_at BIGINT, changes JSONB) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    w RECORD;
BEGIN
    IF changes ?| ARRAY['inbound', 'begins', 'status'] THEN
        SELECT * INTO w FROM jsonb_to_record(changes) AS x (
            inbound TEXT, begins BIGINT, status TEXT, reason TEXT, durability TEXT, config TEXT, command TEXT,
            locked BIGINT, approvals TEXT, questions TEXT, pool TEXT);
        UPDATE conclave.rooms AS r SET
            text = CASE WHEN r.text = '' THEN coalesce(w.inbound, '') ELSE r.text END,
            -- An ended room that begins another run is open again.
            started = coalesce(w.begins, r.started),
            durability = CASE WHEN w.begins IS NULL THEN r.durability ELSE w.durability END,
            config = CASE WHEN w.begins IS NULL THEN r.config ELSE w.config END,
            command = CASE WHEN w.begins IS NULL THEN r.command ELSE w.command END,
            locked = CASE WHEN w.begins IS NULL THEN r.locked ELSE w.locked END,
            approvals = CASE WHEN w.begins IS NULL THEN r.approvals ELSE w.approvals END,
            questions = CASE WHEN w.begins IS NULL THEN r.questions ELSE w.questions END,
            pool = CASE WHEN w.begins IS NULL THEN r.pool WHEN of_room = of_run THEN w.pool END,
            -- One write can both begin a run and end it.
            ended = CASE WHEN w.status IS NOT NULL THEN now_at WHEN w.begins IS NULL THEN r.ended END,
            reason = CASE WHEN w.status IS NOT NULL THEN w.reason WHEN w.begins IS NULL THEN r.reason END,
            status = CASE WHEN w.status IS NOT NULL THEN w.status WHEN w.begins IS NULL THEN r.status END
        WHERE r.room = of_room;
    END IF;
    IF changes ? 'pending' THEN
        PERFORM conclave.change_pending_work(of_room, changes -> 'pending');
    END IF;
END $$;

-- Changes the lists of what a room waits for.
CREATE FUNCTION change_pending_work(of_room TEXT, changes JSONB) RETURNS VOID
LANGUAGE plpgsql AS $$
DECLARE
    w RECORD;
BEGIN
    SELECT * INTO w FROM jsonb_to_record(changes) AS x (
        is_over BOOLEAN, calls_over BIGINT[], waits_over TEXT[], timers_over BIGINT[], waits JSONB, timers JSONB);
    IF w.is_over THEN
        DELETE FROM conclave.waits WHERE room = of_room;
        DELETE FROM conclave.timers WHERE room = of_room;
    END IF;
    IF w.calls_over IS NOT NULL THEN
        DELETE FROM conclave.waits WHERE room = of_room AND call = ANY (w.calls_over);
    END IF;
    IF w.waits_over IS NOT NULL THEN
        DELETE FROM conclave.waits WHERE room = of_room AND key = ANY (w.waits_over);
    END IF;
    IF w.timers_over IS NOT NULL THEN
        DELETE FROM conclave.timers WHERE room = of_room AND timer = ANY (w.timers_over);
    END IF;
    IF w.waits IS NOT NULL THEN
        INSERT INTO conclave.waits (room, key, call, kind, target, since)
            SELECT of_room, n.key, n.call, n.kind, n.target, n.since
            FROM jsonb_to_recordset(w.waits) AS n (key TEXT, call BIGINT, kind TEXT, target TEXT, since BIGINT)
            ON CONFLICT (room, key) DO UPDATE SET call = EXCLUDED.call, kind = EXCLUDED.kind,
                target = EXCLUDED.target, since = EXCLUDED.since, request = NULL;
    END IF;
    IF w.timers IS NOT NULL THEN
        INSERT INTO conclave.timers (room, timer, at, since)
            SELECT of_room, n.timer, n.at, n.since
            FROM jsonb_to_recordset(w.timers) AS n (timer BIGINT, at BIGINT, since BIGINT)
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

-- Records a change of a file for the host that has the run by this epoch. `new_content` is NULL for
-- a removed file, and `new_change` too if the change is undone. May be sent again: the same change
-- is done then. Returns `done`, or why nothing was changed: `fenced`, `behind` or `no-content`.
CREATE FUNCTION change_overlay(
    of_run TEXT, by_epoch BIGINT, of_overlay TEXT, of_dir TEXT, of_display_path TEXT, new_number BIGINT,
    of_name TEXT, of_path TEXT, new_change TEXT, new_content TEXT, new_length BIGINT
) RETURNS TEXT
LANGUAGE plpgsql AS $$
DECLARE
    latest RECORD;
BEGIN
    IF new_content IS NOT NULL THEN
        -- As in `commit_group`: before the rows of rooms, and against retention.
        LOCK TABLE conclave.blobs IN ROW EXCLUSIVE MODE;
        IF NOT EXISTS (SELECT 1 FROM conclave.blobs AS b WHERE b.sha256 = new_content) THEN
            RETURN 'no-content';
        END IF;
    END IF;
    -- Locked to the end, so that no host takes the run between this check and the commit.
    PERFORM 1 FROM conclave.rooms AS r WHERE r.room = of_run AND r.epoch = by_epoch FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    INSERT INTO conclave.overlays (run, overlay, dir, display_path, changes, epoch)
        VALUES (of_run, of_overlay, of_dir, of_display_path, 0, by_epoch) ON CONFLICT DO NOTHING;
    UPDATE conclave.overlays AS o SET changes = new_number, epoch = by_epoch
        WHERE o.run = of_run AND o.overlay = of_overlay AND o.changes = new_number - 1;
    IF NOT FOUND THEN
        -- A transaction that changes nothing does not wait for a standby, and an earlier attempt of
        -- the same change may have been cut off from it.
        UPDATE conclave.overlays AS o SET changes = o.changes WHERE o.run = of_run AND o.overlay = of_overlay
            RETURNING o.changes, o.epoch INTO STRICT latest;
        RETURN CASE WHEN latest.changes = new_number AND latest.epoch = by_epoch THEN 'done' ELSE 'behind' END;
    END IF;
    IF new_change IS NULL THEN
        DELETE FROM conclave.overlay_files AS f
            WHERE f.run = of_run AND f.overlay = of_overlay AND f.name = of_name;
    ELSE
        INSERT INTO conclave.overlay_files (run, overlay, name, path, change, content, length)
            VALUES (of_run, of_overlay, of_name, of_path, new_change, new_content, new_length)
            ON CONFLICT (run, overlay, name) DO UPDATE
            SET change = EXCLUDED.change, content = EXCLUDED.content, length = EXCLUDED.length;
    END IF;
    RETURN 'done';
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
