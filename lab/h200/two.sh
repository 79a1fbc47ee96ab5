#!/usr/bin/env bash
# What four.sh left open, on a machine with two GPUs and 32 cores: 22 minutes, then OUT holds what it left.
# usage: two.sh OUT      DEADLINE (epoch second) ends it early; the other variables are those of phase.sh and serve.sh
# Each GPU has 8 CPU cores of its own and the client's scale 16, once beside the servers' start and once with nothing beside it.
# Both arms run on both GPUs, in opposite order.
set -uo pipefail
out=$1 here=$(cd "$(dirname "$0")" && pwd)
export LOADGEN=${LOADGEN:-python3 -m loadgen} DEADLINE=${DEADLINE:-$(($(date +%s) + 1500))}
mkdir -p "$out"
phase() { bash "$here/phase.sh" "$@"; }
gpu() { export CUDA_VISIBLE_DEVICES=$1 PORT=$((8000 + $1)) CORES=$((8 * $1))-$((8 * $1 + 7)); }
graphs() { # ARM STEP…: with CUDA graphs, and if such a server does not come up, without
  local arm=$1; shift
  CPUGB=${SMALL:-80} GRAPHS=1 phase "$arm" "$out" "$@" || CPUGB=${SMALL:-80} phase "$arm" "$out" "$@"
}
slot0() {
  gpu 0
  graphs off closed:1 closed:2 controls:1-3 tpot:1-3
  graphs lmcache-cpu controls:4-6 tpot:4-6 closed:1 closed:2
}
slot1() {
  gpu 1
  phase lmcache-disk "$out" sweep:5:5
  rm -rf "${KVDIR:-/opt/kv}"
  graphs lmcache-cpu controls:1-3 tpot:1-3
  graphs off controls:4-6 tpot:4-6
}
scale() { # NAME
  for endpoint in stamped sim; do
    local streams=200; [ $endpoint = sim ] && streams=50
    timeout $((DEADLINE - $(date +%s))) taskset -c 16-31 ${SCALE:-python3} "$here/../../benchmarks/fleet_scale.py" --endpoint $endpoint --streams $streams \
      --workers 1,2,4,8 --servers 4 ${SIM_TOKENIZER:+--tokenizer "$SIM_TOKENIZER"} --json >"$out/scale-$1-$endpoint.json" 2>"$out/scale-$1-$endpoint.err"
  done
  echo "[$(date +%T)] scale $1 done"
}
{ nvidia-smi --query-gpu=index,name,memory.total --format=csv; df -h "${KVDIR:-/opt}" /tmp; nproc; } >"$out/machine.txt" 2>&1
slot0 & slot1 & scale beside & wait
scale quiet
touch "$out/over"
