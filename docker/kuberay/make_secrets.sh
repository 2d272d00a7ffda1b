#!/bin/sh
# Writes new secrets to docker/kuberay/secrets, each in a file that you alone read. Those that are there stay.
set -eu
cd "$(dirname "$0")"
# shellcheck source=/dev/null
. ../secret_files.sh

write auth_token "$(word)"
write redis "$(word)"
write postgres "$(word)"
write username admin
write password "$(word)"
write key "$(word)"
