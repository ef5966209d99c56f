-- compatible_from: 11
-- What is read of a user's history, and of due asset work, costs the same however much there is.

-- The newest of a user's jobs are asked for by id: without it in the index, each day's ids are walked backwards.
CREATE INDEX job_history_user_id ON job_history (user_key, id);
DROP INDEX job_history_user;
CREATE INDEX asset_run_due ON asset_run (due);
