-- Migration 3: what nobody told, estimated (R-R4).
--
-- `guess_*` are sums like the other counters of an execution, over the meter rows that `estimated` marks. They alone may
-- fall: when a true figure takes the place of an estimate.

ALTER TABLE execution ADD COLUMN guess_input INTEGER NOT NULL DEFAULT 0;
ALTER TABLE execution ADD COLUMN guess_cached INTEGER NOT NULL DEFAULT 0;
ALTER TABLE execution ADD COLUMN guess_output INTEGER NOT NULL DEFAULT 0;
ALTER TABLE execution ADD COLUMN guess_cost_micros INTEGER;

ALTER TABLE meter ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;

-- Query: how many attempts of a task are under way, and so set aside from its limit.
CREATE INDEX attempt_open ON attempt (task, epoch) WHERE state = 'RUNNING';
