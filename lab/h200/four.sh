#!/usr/bin/env bash
# All arms on a machine with four GPUs, side by side: about 25 minutes, then OUT holds what they left.
# usage: four.sh OUT      DEADLINE (epoch second) ends it early; the other variables are those of phase.sh and serve.sh
# Each GPU has 12 CPU cores of its own and the client's scale 16. Arms change places between GPU 0 and 1 half-way, so that neither
# a GPU nor an hour is an arm's own: repetitions 1 to 3 run on one of them and 4 to 6 on the other.
set -uo pipefail
out=$1 here=$(cd "$(dirname "$0")" && pwd)
export LOADGEN=${LOADGEN:-python3 -m loadgen} DEADLINE=${DEADLINE:-$(($(date +%s) + 1560))}
marks=/tmp/four-marks; rm -rf $marks; mkdir -p $marks "$out"
phase() { bash "$here/phase.sh" "$@"; }
gpu() { export CUDA_VISIBLE_DEVICES=$1 PORT=$((8000 + $1)) CORES=$((12 * $1))-$((12 * $1 + 11)); }
await() { for _ in $(seq "$2"); do [ -e "$marks/$1" ] && return; sleep 1; done; echo "[$(date +%T)] gave up waiting for $1"; }

slot0() {
  gpu 0
  KEEP=1 phase off "$out" doctor; touch $marks/off
  await taxes 240 # the config tax is taken between this server and its neighbour's, which must both be idle
  phase off "$out" doctor sweep:1:5 sweep:2:5 sweep:3:5 repeats:1-3 controls:1-3 sweep:4:5 cold:10000 cold:20000 cold:40000 cold:80000
  phase lmcache-cpu "$out" repeats:4-6 controls:4-6
}
slot1() {
  gpu 1
  KEEP=1 phase lmcache-cpu "$out" doctor
  await off 240
  KEEP=1 phase lmcache-cpu "$out" taxes:http://127.0.0.1:8000; touch $marks/taxes
  phase lmcache-cpu "$out" sweep:3:5 sweep:2:5 sweep:1:5 sweep:4:5 sweep:5:5 repeats:1-3 controls:1-3 cold:10000 cold:20000 cold:40000 cold:80000
  phase off "$out" sweep:5:5 repeats:4-6 controls:4-6
}
slot2() {
  gpu 2
  phase native "$out" doctor sweep:3:5 sweep:2:5 sweep:1:5 sweep:4:5 sweep:5:5 repeats:1-3 controls:1-3 closed:4 closed:8 closed:2 closed:1
  phase off "$out" closed:4 closed:8 closed:2 closed:1
}
slot3() {
  gpu 3
  phase lmcache-disk "$out" doctor sweep:3:5 sweep:2:5 sweep:4:5 sweep:1:5 repeats:1-3
  phase lmcache-cpu "$out" closed:4 closed:8 closed:2 closed:1
  touch $marks/gpus
}
scale() { # while other GPUs may still work, on cores that are nobody else's
  await gpus 1500
  for endpoint in stamped sim; do
    timeout $((DEADLINE - $(date +%s))) taskset -c 48-63 ${SCALE:-python3} "$here/../../benchmarks/fleet_scale.py" --endpoint $endpoint \
      ${SIM_TOKENIZER:+--tokenizer "$SIM_TOKENIZER"} --json >"$out/scale-$endpoint.json" 2>"$out/scale-$endpoint.err"
  done
  echo "[$(date +%T)] scale done"
}
nvidia-smi --query-gpu=index,name,memory.total --format=csv >"$out/gpus.csv" 2>&1
slot0 & slot1 & slot2 & slot3 & scale &
wait
touch $marks/over
echo "[$(date +%T)] over"
