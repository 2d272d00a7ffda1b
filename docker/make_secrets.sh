#!/bin/sh
# Writes new secrets to docker/secrets, each in a file that you alone read, and docker/.env with your user id.
# Those that are there stay as they are.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }

write ray_token "$(word)"
write postgres_password "$(word)"
write mlflow_user admin
write mlflow_password "$(word)"
write mlflow_key "$(word)"
key=$(word)
secret=$(word)
if [ ! -s secrets/s3_server.json ]; then
  printf '{"identities": [{"name": "mlflow", "credentials": [{"accessKey": "%s", "secretKey": "%s"}], "actions": ["Admin"]}]}\n' \
    "$key" "$secret" > secrets/s3_server.json
  printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$key" "$secret" > secrets/s3_client.ini
fi
printf 'MLCL_UID=%s\n' "$(id -u)" > .env
