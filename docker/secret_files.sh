# shellcheck shell=sh
# Sourced by the make_secrets.sh scripts, in the folder whose `secrets` they fill. Files that are there stay.
umask 077
mkdir -p secrets

word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
write() { [ -s "secrets/$1" ] || printf '%s' "$2" > "secrets/$1"; }
