#!/bin/sh
# Run by the image of PostgreSQL when it makes its data folder.
set -eu
psql -U "$POSTGRES_USER" -d "$POSTGRES_DB" -v ON_ERROR_STOP=1 \
  -v database="$POSTGRES_DB" -v password="$CRP_DB_PASSWORD" -f /logins.sql
