#!/bin/sh
# Programs that take a secret from a variable alone get it from the file that VARIABLE_FILE names.
set -eu
for name in MLFLOW_AUTH_ADMIN_USERNAME MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY PGPASSWORD; do
  eval "file=\${${name}_FILE:-}"
  if [ -n "$file" ]; then
    # On a line of its own: a file that cannot be read ends the container.
    value=$(cat "$file")
    export "$name=$value"
  fi
done
exec "$@"
