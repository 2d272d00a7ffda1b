#!/bin/sh
# Writes new secrets to docker/kuberay/secrets, each in a file that you alone read. Those that are there stay.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }

write auth_token "$(word)"
write redis "$(word)"
write postgres "$(word)"
write username admin
write password "$(word)"
write key "$(word)"
