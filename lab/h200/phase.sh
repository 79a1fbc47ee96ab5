#!/usr/bin/env bash
# One arm on a GPU machine: start the server, measure with loadgen, stop the server. Leaves OUT/<arm>.tar.gz and OUT/<arm>.log.
# usage: phase.sh ARM OUT      ARM: off | lmcache-cpu | lmcache-disk | native | scale
#   SERVE    script that serves an arm on 127.0.0.1:8000 and returns when it is healthy (see docs/h200.md); its process is /tmp/vllm.pid
#   LOADGEN  command that runs loadgen (default: python3 -m loadgen)
set -uo pipefail
arm=$1; out=$2; LOADGEN=${LOADGEN:-python3 -m loadgen}
runs=/tmp/runs-$arm; mkdir -p "$runs" "$out"
began=$SECONDS
say() { echo "[$((SECONDS - began)) s] $*"; }

# play NAME SECONDS ARGUMENTS…: one run, bounded in time; a run that is cut keeps its samples
play() {
  local name=$1 limit=$2; shift 2
  say "$name"
  timeout --signal=TERM --kill-after=20 "$limit" $LOADGEN run --host http://127.0.0.1:8000 --tokenizer server \
    --arm "$arm" --run-dir "$runs/$name" "$@" 2>&1 | grep -vE '^ *$|run folder|^report' || true
}

sweeps() {
  for spec in "$@"; do # contexts x turns : limit
    local n=${spec%%x*} rest=${spec#*x}
    play "sweep-n$n" "${rest#*:}" --sessions "$n" --turns "${rest%%:*}" --context-tokens 140000 --output-tokens 32
  done
}

controls() { # nothing here can gain from a tier
  play control-chat 60 --sessions 40 --turns 1 --context-tokens 2000 --output-tokens 16
  play control-fits 60 --sessions 2 --turns 4 --context-tokens 20000 --output-tokens 16
}

curve() { # cold lengths, for the fit
  for tokens in 10000 20000 40000 80000; do
    play "cold-$tokens" 60 --sessions 2 --turns 1 --context-tokens "$tokens" --output-tokens 16
  done
}

if [ "$arm" = scale ]; then
  for workers in 1 2 4 8; do
    $LOADGEN sim --profile blog --arm offload --scale 1 --port 8000 >/tmp/sim.log 2>&1 & sim=$!
    sleep 6
    say "scale: $workers workers"
    timeout 90 $LOADGEN run --host http://127.0.0.1:8000 --arm "w$workers" --run-dir "$runs/w$workers" --schedule closed -u 400 \
      --processes "$workers" --sessions 400 --turns 1 --context-tokens 512 --output-tokens 400 2>&1 | grep -vE '^ *$' | tail -30
    kill $sim; wait $sim 2>/dev/null
  done
else
  say "serving $arm"
  bash "$SERVE" "$arm" 2>&1 | tail -3
  say "up"
  $LOADGEN doctor --host http://127.0.0.1:8000 --context-tokens 140000 --json >"$runs/doctor.json" 2>"$runs/doctor.err"
  say "doctor done"
  case $arm in
    off) sweeps 2x5:120 3x5:220 4x2:150; curve; controls ;;
    lmcache-cpu) sweeps 2x5:120 3x5:150; controls; curve
      $LOADGEN doctor --host http://127.0.0.1:8000 --context-tokens 140000 --taxes --json >"$runs/taxes.json" 2>"$runs/taxes.err"; say "taxes done" ;;
    lmcache-disk) sweeps 2x3:200 3x2:240 ;;
    native) sweeps 3x3:160; controls ;;
  esac
  curl -s http://127.0.0.1:8000/metrics >"$runs/metrics.txt"
  kill -TERM -- -"$(cat /tmp/vllm.pid)" 2>/dev/null; sleep 4; kill -KILL -- -"$(cat /tmp/vllm.pid)" 2>/dev/null
  tail -c 200000 "${LOG:-/tmp/vllm.log}" | gzip >"$runs/vllm.log.gz"
fi
find "$runs" -name job.json -size +2M -delete
tar -C /tmp -czf "$out/$arm.tar.gz" "runs-$arm"
say "done"
