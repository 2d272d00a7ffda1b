#!/bin/sh
# Writes new secrets to docker/secrets, each in a file that you alone read, and docker/.env with your user id.
# Those that are there stay as they are.
set -eu
cd "$(dirname "$0")"
# shellcheck source=/dev/null
. ./secret_files.sh

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
