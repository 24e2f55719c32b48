-- Migration 1: the durable record.
--
-- Times are integer milliseconds UTC. State words are those of `domain::machine::Word`. Hashes are 32 bytes.
-- `seq` is a number inside this database only; people and files know a run by its id. `tenant` leads every business
-- UNIQUE. Every row of a run says under which fence it was last written.

CREATE TABLE schema_version (
    version    INTEGER NOT NULL PRIMARY KEY,
    min_reader INTEGER NOT NULL,
    min_writer INTEGER NOT NULL
) STRICT;

CREATE TABLE task (
    seq        INTEGER NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL DEFAULT 'local',
    id         TEXT    NOT NULL,
    folded     TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (tenant, folded)
) STRICT;

CREATE TABLE run (
    seq               INTEGER NOT NULL PRIMARY KEY,
    tenant            TEXT    NOT NULL DEFAULT 'local',
    id                TEXT    NOT NULL,
    task              INTEGER NOT NULL REFERENCES task (seq),
    number            INTEGER NOT NULL,
    instance          INTEGER NOT NULL,
    status            TEXT    NOT NULL,
    phase             TEXT,
    attempt           INTEGER NOT NULL,
    fence             INTEGER NOT NULL,
    fingerprint       BLOB    NOT NULL,
    task_text         TEXT    NOT NULL,
    base_commit       TEXT    NOT NULL,
    prompt_version    TEXT,
    context_hash      BLOB    NOT NULL,
    mode              TEXT    NOT NULL,
    policy_version    TEXT    NOT NULL,
    title             TEXT,
    concurrency_group TEXT,
    code              TEXT,
    message           TEXT,
    retry_at          INTEGER,
    request_id        TEXT    NOT NULL,
    support_code      TEXT    NOT NULL,
    key_hash          BLOB,
    cancel_requested  INTEGER NOT NULL,
    snapshot          TEXT,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    finished_at       INTEGER,
    heartbeat_at      INTEGER,
    lease_pid         INTEGER,
    lease_start_ticks INTEGER,
    lease_boot_id     TEXT,
    lease_until       INTEGER,
    swept_at          INTEGER,
    UNIQUE (tenant, id),
    UNIQUE (tenant, task, number),
    UNIQUE (tenant, fingerprint, instance)
) STRICT;

-- Query: the newest runs (`RunFilter::Newest`).
CREATE INDEX run_by_age ON run (tenant, seq);
-- Query: the runs of one task, newest first (`RunFilter::Task`).
CREATE INDEX run_by_task ON run (tenant, task, created_at);
-- Query: open runs, dead letters, and RUNNING runs whose holder may be gone.
CREATE INDEX run_by_status ON run (tenant, status, heartbeat_at);
-- Query: a run by the code that a person reads out. Not unique: eight letters collide among some ten thousand runs.
CREATE INDEX run_by_support_code ON run (tenant, support_code);
-- Query: who holds a concurrency group. Unique: the last line of defence of R-W6.
CREATE UNIQUE INDEX run_by_group ON run (tenant, concurrency_group)
    WHERE status = 'RUNNING' AND concurrency_group IS NOT NULL;

-- What a run was given, apart from the run: listings never read it and heartbeats never rewrite it.
CREATE TABLE run_inputs (
    run    INTEGER NOT NULL PRIMARY KEY REFERENCES run (seq),
    inputs TEXT    NOT NULL,
    fence  INTEGER NOT NULL
) STRICT;

CREATE TABLE attempt (
    run         INTEGER NOT NULL REFERENCES run (seq),
    number      INTEGER NOT NULL,
    task        INTEGER NOT NULL REFERENCES task (seq),
    epoch       INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    code        TEXT,
    opened_by   TEXT    NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    fence       INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) STRICT;

-- Query: how many attempts of a task failed since its last success (R-R4).
CREATE INDEX attempt_failed ON attempt (task, epoch) WHERE state IN ('FAILED', 'LOST');

CREATE TABLE step (
    run         INTEGER NOT NULL REFERENCES run (seq),
    key         TEXT    NOT NULL,
    position    INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    attempt     INTEGER NOT NULL,
    runs        INTEGER NOT NULL,
    rounds      INTEGER NOT NULL,
    sent_back   INTEGER NOT NULL,
    code        TEXT,
    message     TEXT,
    started_at  INTEGER,
    finished_at INTEGER,
    fence       INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) STRICT;

-- The counters of an execution are the sums of its meter rows, kept up with them: no listing adds up single responses.
CREATE TABLE execution (
    seq               INTEGER NOT NULL PRIMARY KEY,
    run               INTEGER NOT NULL REFERENCES run (seq),
    step              TEXT    NOT NULL,
    number            INTEGER NOT NULL,
    attempt           INTEGER NOT NULL,
    task              INTEGER NOT NULL REFERENCES task (seq),
    epoch             INTEGER NOT NULL,
    child_pid         INTEGER,
    child_start_ticks INTEGER,
    child_boot_id     TEXT,
    session           TEXT,
    model             TEXT,
    process_end       TEXT,
    result            TEXT,
    active_ms         INTEGER NOT NULL,
    input             INTEGER NOT NULL DEFAULT 0,
    cached            INTEGER NOT NULL DEFAULT 0,
    output            INTEGER NOT NULL DEFAULT 0,
    cost_micros       INTEGER,
    tool_calls        INTEGER NOT NULL DEFAULT 0,
    started_at        INTEGER NOT NULL,
    finished_at       INTEGER,
    fence             INTEGER NOT NULL,
    UNIQUE (run, step, number),
    FOREIGN KEY (run, step) REFERENCES step (run, key)
) STRICT;

-- Query: what a task used since its last success (R-R4).
CREATE INDEX execution_by_ledger ON execution (task, epoch);

-- One counted thing: a model response or a tool call. A name that comes again never lowers a counter (I9).
CREATE TABLE meter (
    run         INTEGER NOT NULL REFERENCES run (seq),
    name        TEXT    NOT NULL,
    execution   INTEGER NOT NULL REFERENCES execution (seq),
    epoch       INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cost_micros INTEGER,
    tool_calls  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE artifact (
    run     INTEGER NOT NULL REFERENCES run (seq),
    path    TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    sha256  BLOB    NOT NULL,
    size    INTEGER NOT NULL,
    step    TEXT,
    attempt INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    PRIMARY KEY (run, path)
) STRICT;

CREATE TABLE checkpoint (
    seq            INTEGER NOT NULL PRIMARY KEY,
    run            INTEGER NOT NULL REFERENCES run (seq),
    name           TEXT    NOT NULL,
    step           TEXT    NOT NULL,
    attempt        INTEGER NOT NULL,
    snapshot       TEXT,
    policy_version TEXT    NOT NULL,
    artifacts      TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    fence          INTEGER NOT NULL
) STRICT;

-- Query: the checkpoints of one run.
CREATE INDEX checkpoint_by_run ON checkpoint (run);

-- The audit log. `code` and `key_hash` are copies out of `body`, for searching; the chain covers `body`.
CREATE TABLE event (
    seq        INTEGER NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL DEFAULT 'local',
    id         TEXT    NOT NULL UNIQUE,
    chain      TEXT    NOT NULL,
    n          INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    run        TEXT,
    attempt    INTEGER,
    step       TEXT,
    reason     TEXT,
    body       TEXT    NOT NULL,
    prev       BLOB    NOT NULL,
    hash       BLOB    NOT NULL,
    code       TEXT,
    key_hash   BLOB,
    fence      INTEGER,
    UNIQUE (tenant, chain, n)
) STRICT;

-- Query: `audit log --request`.
CREATE INDEX event_by_request ON event (request_id);
-- Query: `audit log --key`.
CREATE INDEX event_by_key ON event (key_hash) WHERE key_hash IS NOT NULL;
-- Query: `audit log --code`.
CREATE INDEX event_by_code ON event (code) WHERE code IS NOT NULL;

-- The caller's idempotency keys of `start`, hashed. A row is never removed: an expired key is said to be expired (R-F7).
CREATE TABLE start_key (
    tenant       TEXT    NOT NULL DEFAULT 'local',
    key_hash     BLOB    NOT NULL,
    request_hash BLOB    NOT NULL,
    run          INTEGER NOT NULL REFERENCES run (seq),
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    PRIMARY KEY (tenant, key_hash)
) STRICT;

CREATE TABLE prompt_version (
    tenant     TEXT    NOT NULL DEFAULT 'local',
    path       TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    sha256     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, path, version)
) STRICT;

CREATE TABLE policy_version (
    tenant     TEXT    NOT NULL DEFAULT 'local',
    version    TEXT    NOT NULL,
    sha256     BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, version)
) STRICT;
