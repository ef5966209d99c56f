-- compatible_from: 11
-- Placeholder until the migration of this number is merged.
SELECT 1;
