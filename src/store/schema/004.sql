-- Migration 4: side effects: actions, approvals, releases, deployments, and what is told of them.
--
-- An action belongs to no run alone (R-M9): it names runs by their ids, so that it outlives them, and is never lost with one.
-- Its request lies in a file; here stand hashes and references (R-A16). `fence` is the number of the right to send or settle it.

-- The hash of the secret by which a program inside a run shows that it belongs to the present holder; a claim sets it anew.
ALTER TABLE run ADD COLUMN token_hash BLOB;

-- One intended side effect. `key` is unique: whoever wants the same is led to it. `lease_run` and `lease_attempt` say which
-- run is at it, if one is: its events go into that run's chain.
CREATE TABLE action (
    seq               INTEGER NOT NULL PRIMARY KEY,
    tenant            TEXT    NOT NULL DEFAULT 'local',
    id                TEXT    NOT NULL,
    key               TEXT    NOT NULL,
    key_hash          BLOB    NOT NULL,
    kind              TEXT    NOT NULL,
    target            TEXT    NOT NULL,
    account           TEXT,
    environment       TEXT    NOT NULL,
    request_hash      BLOB    NOT NULL,
    normal_version    INTEGER NOT NULL,
    request_file      TEXT    NOT NULL,
    state             TEXT    NOT NULL,
    code              TEXT,
    message           TEXT,
    run               TEXT    NOT NULL,
    step              TEXT,
    contract          TEXT    NOT NULL,
    irreversible      INTEGER NOT NULL,
    approval          TEXT,
    digest            BLOB,
    tries             INTEGER NOT NULL,
    reference         TEXT,
    summary           TEXT,
    release           TEXT,
    corrects          TEXT,
    request_id        TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    sent_at           INTEGER,
    finished_at       INTEGER,
    retry_at          INTEGER,
    deadline          INTEGER NOT NULL,
    expires_at        INTEGER,
    query_from        INTEGER,
    owner             TEXT,
    due               INTEGER,
    review            TEXT,
    last_fact         TEXT    NOT NULL,
    fence             INTEGER NOT NULL,
    lease_pid         INTEGER,
    lease_start_ticks INTEGER,
    lease_boot_id     TEXT,
    lease_until       INTEGER,
    lease_run         TEXT,
    lease_attempt     INTEGER,
    UNIQUE (tenant, id),
    UNIQUE (tenant, key)
) STRICT;

-- Query: what is open, or waits for a person (`ActionFilter`).
CREATE INDEX action_by_state ON action (tenant, state, retry_at);

-- Who wanted an action, and what the answer was. Tracing, never identity (R-A2).
CREATE TABLE action_wanted (
    seq          INTEGER NOT NULL PRIMARY KEY,
    action       INTEGER NOT NULL REFERENCES action (seq),
    run          TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    step         TEXT,
    call         TEXT,
    conversation TEXT,
    request_id   TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    answer       TEXT    NOT NULL,
    fence        INTEGER NOT NULL
) STRICT;

-- Query: who wanted it.
CREATE INDEX action_wanted_by_action ON action_wanted (action);
-- Query: what a run wanted.
CREATE INDEX action_wanted_by_run ON action_wanted (run);

-- What was seen of an action, by whatever way.
CREATE TABLE action_reading (
    seq     INTEGER NOT NULL PRIMARY KEY,
    action  INTEGER NOT NULL REFERENCES action (seq),
    at      INTEGER NOT NULL,
    reading TEXT    NOT NULL,
    source  TEXT    NOT NULL,
    tries   INTEGER NOT NULL,
    fence   INTEGER NOT NULL
) STRICT;

-- Query: the readings of one action, in order.
CREATE INDEX action_reading_by_action ON action_reading (action);

-- One send each.
CREATE TABLE action_send (
    tenant TEXT    NOT NULL DEFAULT 'local',
    action INTEGER NOT NULL REFERENCES action (seq),
    tries  INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    target TEXT    NOT NULL,
    run    TEXT,
    at     INTEGER NOT NULL,
    fence  INTEGER NOT NULL,
    PRIMARY KEY (action, tries)
) STRICT;

-- Query: how many in the window (R-A15).
CREATE INDEX action_send_by_target ON action_send (tenant, kind, target, at);

-- A request for a person's agreement, for an action or for a step of a run.
CREATE TABLE approval (
    seq        INTEGER NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL DEFAULT 'local',
    id         TEXT    NOT NULL,
    action     TEXT,
    run        TEXT    NOT NULL,
    step       TEXT,
    state      TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    terms      TEXT    NOT NULL,
    rule       TEXT,
    asked_at   INTEGER NOT NULL,
    expires_at INTEGER,
    decided_at INTEGER,
    decided_by TEXT,
    reason     TEXT,
    fence      INTEGER NOT NULL,
    UNIQUE (tenant, id)
) STRICT;

-- Query: the approvals of one action.
CREATE INDEX approval_by_action ON approval (tenant, action);
-- Query: the approvals of one run or step.
CREATE INDEX approval_by_run ON approval (tenant, run, step);
-- Query: what waits for a person, and what is over.
CREATE INDEX approval_by_state ON approval (tenant, state, expires_at);

-- A name for one content (R-A19); `commit_id` and artifacts (as JSON: path, hash) never change.
CREATE TABLE release (
    seq        INTEGER NOT NULL PRIMARY KEY,
    tenant     TEXT    NOT NULL DEFAULT 'local',
    id         TEXT    NOT NULL,
    commit_id  TEXT    NOT NULL,
    artifacts  TEXT    NOT NULL,
    run        TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    UNIQUE (tenant, id)
) STRICT;

-- One release in one environment, once (R-A10).
CREATE TABLE deployment (
    seq         INTEGER NOT NULL PRIMARY KEY,
    tenant      TEXT    NOT NULL DEFAULT 'local',
    environment TEXT    NOT NULL,
    release     TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    verified    INTEGER,
    at          INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    UNIQUE (tenant, environment, release)
) STRICT;

-- Events that somebody outside is to hear of, with the event that tells of them (R-E3). `ordinal` counts within a chain.
CREATE TABLE outbox (
    seq          INTEGER NOT NULL PRIMARY KEY,
    tenant       TEXT    NOT NULL DEFAULT 'local',
    event        TEXT    NOT NULL UNIQUE,
    chain        TEXT    NOT NULL,
    ordinal      INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    body         TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    delivered_at INTEGER,
    tries        INTEGER NOT NULL,
    UNIQUE (tenant, chain, ordinal)
) STRICT;

-- Query: what is still to be delivered, in order.
CREATE INDEX outbox_open ON outbox (tenant, seq) WHERE delivered_at IS NULL;

-- What a consumer has processed. A row is never removed.
CREATE TABLE consumed (
    tenant   TEXT    NOT NULL DEFAULT 'local',
    consumer TEXT    NOT NULL,
    event    TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (tenant, consumer, event)
) STRICT, WITHOUT ROWID;
