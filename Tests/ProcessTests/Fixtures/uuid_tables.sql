-- A host application whose keys are uuid: the tables that sql/host/adapter_uuid.sql is written for.

CREATE TABLE accounts (
    uid        uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    plan       text        NOT NULL DEFAULT 'free' CHECK (plan IN ('free', 'pro')),
    state      text        NOT NULL DEFAULT 'enabled'
                           CHECK (state IN ('signing_up', 'enabled', 'blocked', 'expelled', 'leaving')),
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE items (
    item_id     uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
    account_uid uuid        NOT NULL REFERENCES accounts,
    locked_for  text[],
    locked_at   timestamptz
);

CREATE INDEX items_account_uid_item_id ON items (account_uid, item_id);
