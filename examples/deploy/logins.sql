-- Logins with the least rights for a CRP store. Run once, as a superuser, in the store's database:
--   psql -d kb -v ON_ERROR_STOP=1 -v database=kb -v password="…" -f logins.sql
-- pgvector cannot be created by anybody else.
CREATE EXTENSION IF NOT EXISTS vector;
-- Nobody else makes tables in this database.
REVOKE CREATE ON SCHEMA public FROM PUBLIC;
REVOKE TEMPORARY ON DATABASE :"database" FROM PUBLIC;
-- The operator: makes the tenants' schemas and owns them. The gateway and `crp` log in as it.
CREATE ROLE crp LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';
GRANT CONNECT, CREATE, TEMPORARY ON DATABASE :"database" TO crp;
-- Only to give each tenant a login of its own (`PostgresStore.admit`), also:
--   ALTER ROLE crp CREATEROLE;
