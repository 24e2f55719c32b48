-- Migration 2: a checkpoint is an execution that succeeded; turns and breakers.
--
-- What goes on at the same time, in which order, and which provider is left alone (R-R8). All of it is about processes and
-- providers of this moment; what a run has done stands in the tables of migration 1.

-- Its name, snapshot, policy and artifacts (as JSON: path, hash). An own table was one more page of every commit.
ALTER TABLE execution ADD COLUMN checkpoint TEXT;
ALTER TABLE execution ADD COLUMN snapshot TEXT;
ALTER TABLE execution ADD COLUMN policy_version TEXT;
ALTER TABLE execution ADD COLUMN artifacts TEXT;

-- A checkpoint belongs to the newest execution of its step that had begun by then.
UPDATE execution SET checkpoint = c.name, snapshot = c.snapshot, policy_version = c.policy_version, artifacts = c.artifacts
FROM checkpoint AS c
WHERE c.run = execution.run AND c.step = execution.step AND execution.number = (
    SELECT max(e.number) FROM execution AS e WHERE e.run = c.run AND e.step = c.step AND e.started_at <= c.at
);

DROP TABLE checkpoint;

-- Query: `audit log --request`. In which chains a command left events: an index of the events themselves would grow, and be
-- written, with every one of them.
CREATE TABLE request_chain (
    tenant     TEXT NOT NULL DEFAULT 'local',
    request_id TEXT NOT NULL,
    chain      TEXT NOT NULL,
    PRIMARY KEY (tenant, request_id, chain)
) STRICT, WITHOUT ROWID;

INSERT INTO request_chain SELECT DISTINCT tenant, request_id, chain FROM event;

DROP INDEX event_by_request;

-- A place in a queue: `runs`, `group:<name>` or `provider:<name>`. `seq` is the order and is never given out twice: a trial
-- is known by it. The row goes with the turn.
CREATE TABLE turn (
    seq                INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant             TEXT    NOT NULL DEFAULT 'local',
    queue              TEXT    NOT NULL,
    run                INTEGER NOT NULL REFERENCES run (seq),
    agent              TEXT,
    state              TEXT    NOT NULL,
    insists            INTEGER NOT NULL,
    holder_pid         INTEGER NOT NULL,
    holder_start_ticks INTEGER NOT NULL,
    holder_boot_id     TEXT    NOT NULL,
    since              INTEGER NOT NULL,
    seen_at            INTEGER NOT NULL,
    fence              INTEGER NOT NULL,
    UNIQUE (tenant, queue, run)
) STRICT;

-- Query: the turns that a holder's heartbeat keeps alive.
CREATE INDEX turn_by_run ON turn (run);

-- Whether a provider may be called: for one agent, or ('') for all. A provider without a row may.
CREATE TABLE breaker (
    tenant      TEXT    NOT NULL DEFAULT 'local',
    provider    TEXT    NOT NULL,
    agent       TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    cause       TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    until       INTEGER NOT NULL,
    rounds      INTEGER NOT NULL,
    trial       INTEGER,
    trial_until INTEGER,
    PRIMARY KEY (tenant, provider, agent)
) STRICT;

-- Calls that ended without an answer, as long as they count.
CREATE TABLE silence (
    seq      INTEGER NOT NULL PRIMARY KEY,
    tenant   TEXT    NOT NULL DEFAULT 'local',
    provider TEXT    NOT NULL,
    agent    TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    code     TEXT    NOT NULL,
    run      TEXT    NOT NULL
) STRICT;

-- Query: how many in the window.
CREATE INDEX silence_by_provider ON silence (tenant, provider, agent, at);
