-- The tables of the smallest host for which entitlement-sync can work. A real host has such tables already, under these names or others:
-- see adapter.sql.

CREATE TABLE IF NOT EXISTS users (
    id         text        PRIMARY KEY,
    type       text        NOT NULL DEFAULT 'free'
                           CHECK (type IN ('free', 'subscriber')),
    status     text        NOT NULL DEFAULT 'active'
                           CHECK (status IN ('active', 'onboarding', 'banned', 'banned_final', 'to_be_deleted')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE IF NOT EXISTS assets (
    id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id        text        NOT NULL REFERENCES users,
    frozen_reasons text[]      NOT NULL DEFAULT '{}',
    frozen_at      timestamptz
);

CREATE INDEX IF NOT EXISTS assets_user_id_id ON assets (user_id, id);
