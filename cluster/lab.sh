#!/bin/sh
# Starts this machine's part of the Ray cluster of lab.yaml: the head if HEAD is an address of this machine, else a
# worker. All machines see the clone under one path; the head comes first, since it makes the token.
#
#   cluster/lab.sh HEAD
set -eu
head=${1:?"usage: lab.sh HEAD"}
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/outputs/ray.token"
case " $(hostname -I) " in
  *" $head "*)
    mkdir -p outputs
    [ -s outputs/ray.token ] || (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > outputs/ray.token)
    # No trial runs beside the head: what fills its memory would end the cluster.
    exec ray start --head --num-cpus 0 --node-ip-address "$head" --disable-usage-stats
    ;;
  *) exec ray start --address "$head:6379" --disable-usage-stats ;;
esac
