-- A host application whose tables have nothing in common with sql/host/schema.sql but their meaning.

CREATE SCHEMA shop;

CREATE TABLE shop.accounts (
    uid     varchar(64) PRIMARY KEY,
    plan    text        NOT NULL DEFAULT 'basic' CHECK (plan IN ('basic', 'premium')),
    state   smallint    NOT NULL DEFAULT 1,    -- 0 signing up, 1 open, 2 blocked, 3 blocked for good, 4 leaving
    joined  date        NOT NULL DEFAULT current_date,
    name    text        NOT NULL DEFAULT 'somebody'
);

CREATE TABLE shop.media (
    item_id     uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    account_uid varchar(64) NOT NULL REFERENCES shop.accounts,
    blocked_for text[]      NOT NULL DEFAULT '{}',
    title       text        NOT NULL DEFAULT 'untitled'
);

CREATE INDEX media_account_uid_item_id ON shop.media (account_uid, item_id);
