-- compatible_from: 11
-- Google Play drops the ids of the purchase before a resubscription with its acknowledgement, unless the call names them.
ALTER TABLE acknowledgement ADD COLUMN account_id text, ADD COLUMN profile_id text;
COMMENT ON COLUMN acknowledgement.account_id IS 'the obfuscated account id that Google Play is asked to keep';
