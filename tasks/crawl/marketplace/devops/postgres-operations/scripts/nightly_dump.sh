#!/usr/bin/env bash
# Dump one database and the roles; keep seven copies. Usage: nightly_dump.sh DATABASE FOLDER
set -euo pipefail

database=$1
folder=$2
stamp=$(date -u +%Y%m%dT%H%M%SZ)

mkdir -p "$folder"
pg_dump --format=directory --jobs=2 --file="$folder/$database-$stamp.part" "$database"
pg_dumpall --globals-only > "$folder/globals-$stamp.sql"
mv "$folder/$database-$stamp.part" "$folder/$database-$stamp.dump"

ls -1d "$folder/$database"-*.dump | sort | head -n -7 | while read -r old; do
  rm -rf -- "$old"
done
