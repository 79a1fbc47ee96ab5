#!/usr/bin/env bash
# One arm on a GPU machine: serve it, measure with loadgen, stop it. Leaves OUT/ARM.tar.gz.
# usage: phase.sh ARM OUT      ARM: off | lmcache-cpu | lmcache-disk | native | scale
#   LIMIT    seconds that the phase may take (default 560). What does not fit is skipped and said. A phase that is called again goes
#            on where it stopped; it finds the server of its arm if that still runs.
#   LOADGEN  command that runs loadgen (default: python3 -m loadgen);  TRACE  trace of the closed loop, left out without
#   SIM_TOKENIZER  tokenizer of the simulated endpoint (scale), where mistral-common's Tekken file is not installed
set -uo pipefail
arm=$1 out=$2 LOADGEN=${LOADGEN:-python3 -m loadgen} LIMIT=${LIMIT:-560}
here=$(cd "$(dirname "$0")" && pwd)
runs=/tmp/runs-$arm sets=/tmp/contexts; mkdir -p "$runs" "$sets" "$out"
url=http://127.0.0.1:8000
say() { echo "[$SECONDS s] $*"; }
left() { echo $((LIMIT - SECONDS)); }

# step NAME NEEDS COMMAND…: once, if NEEDS seconds are left, and cut at the end of the phase
step() {
  local name=$1 needs=$2; shift 2
  [ -e "$runs/$name.done" ] && return
  [ "$(left)" -ge "$needs" ] || { say "$name skipped: $(left) s left, $needs needed"; return; }
  say "$name"
  timeout --signal=TERM --kill-after=15 "$(($(left) - 10))" "$@" >"$runs/$name.out" 2>&1
  local code=$?
  grep -vE '^ *$|run folder|^report' "$runs/$name.out" | tail -32
  [ $code = 0 ] && touch "$runs/$name.done" || say "$name ended with $code"
}
play() { # NAME NEEDS ARGUMENTS…: one run
  local name=$1 needs=$2; shift 2
  step "$name" "$needs" $LOADGEN run --host $url --tokenizer server --arm "$arm" --run-dir "$runs/$name" "$@"
}
contexts() { # TOKENS N: exact by this server's own count; the same in every arm
  [ -e "$sets/$1/manifest.json" ] || $LOADGEN corpus build stdlib -n "$2" --tokens "$1" --tokenizer server --host $url -o "$sets/$1" 2>&1 | tail -1
}
sweep() { # N TURNS NEEDS
  play "sweep-n$1" "$3" --contexts "$sets/140000" --sessions "$1" --turns "$2" --output-tokens 32
}
repeats() { # N NEEDS: runs of one shape, as a verdict needs; N contexts of 30,000 tokens overflow the pool as 4 of 140,000 do
  for rep in 1 2 3 4 5; do
    play "r-$rep" "$2" --contexts "$sets/30000" --sessions "$1" --turns 2 --output-tokens 4 --rep "$rep"
  done
}
controls() { # nothing here can gain from a tier
  play control-chat 30 --sessions 40 --turns 1 --context-tokens 2000 --output-tokens 16
  play control-fits 30 --contexts "$sets/30000" --sessions 4 --turns 5 --output-tokens 16
}
curve() { # cold lengths, for the fit
  for tokens in 10000 20000 40000 80000; do
    play "cold-$tokens" 30 --sessions 2 --turns 1 --context-tokens "$tokens" --output-tokens 16
  done
}
closed() { # WIDTH…: recorded sessions, as fast as the server answers
  [ -n "${TRACE:-}" ] || return
  for width in "$@"; do
    play "closed-u$width" 70 --trace "$TRACE" --schedule closed -u "$width" --copies 4 --mid-start --gap-scale 0 --output-tokens 32 -t 50
  done
}
serving() { curl -sf -o /dev/null $url/health && [ "$(cat /tmp/vllm.arm 2>/dev/null)" = "$arm" ]; }
stop() { [ -e /tmp/vllm.pid ] && kill -TERM -- -"$(cat /tmp/vllm.pid)" 2>/dev/null && sleep 4; kill -KILL -- -"$(cat /tmp/vllm.pid 2>/dev/null)" 2>/dev/null; rm -f /tmp/vllm.pid /tmp/vllm.arm; }

if [ "$arm" = scale ]; then
  for workers in 1 2 4 8; do
    $LOADGEN sim --profile blog --arm offload --scale 1 --port 8000 ${SIM_TOKENIZER:+--tokenizer "$SIM_TOKENIZER"} >/tmp/sim.log 2>&1 & sim=$!
    for _ in $(seq 60); do curl -sf -o /dev/null $url/health && break; kill -0 $sim 2>/dev/null || break; sleep 0.5; done
    curl -sf -o /dev/null $url/health || { say "the simulated endpoint did not start:"; tail -3 /tmp/sim.log; exit 1; }
    step "w$workers" 30 $LOADGEN run --host $url --arm "w$workers" --run-dir "$runs/w$workers" --schedule closed -u 400 \
      --processes "$workers" --sessions 400 --turns 1 --context-tokens 512 --output-tokens 400
    kill $sim; wait $sim 2>/dev/null
  done
else
  if serving; then say "$arm still runs"; else
    stop
    say "serving $arm"
    bash "${SERVE:-$here/serve.sh}" "$arm" 2>&1 | tail -25
    echo "$arm" >/tmp/vllm.arm
    serving || { say "$arm did not come up"; cp /tmp/vllm.log "$out/$arm-vllm.log"; exit 1; }
  fi
  contexts 140000 4; contexts 30000 13
  step doctor 30 sh -c "$LOADGEN doctor --host $url --context-tokens 140000 --json >$runs/doctor.json"
  case $arm in
    off) sweep 4 2 120; sweep 3 3 110; sweep 2 3 50; curve; controls; closed 2 8; repeats 13 40 ;;
    lmcache-cpu) sweep 4 3 80; controls; repeats 13 25; closed 2 8; sweep 3 3 60; sweep 2 3 50; curve
      step taxes 60 sh -c "$LOADGEN doctor --host $url --probe-tokens 30000 --taxes --json >$runs/taxes.json" ;;
    lmcache-disk) sweep 3 2 140; sweep 2 3 50 ;;
    native) sweep 3 3 60; controls ;;
  esac
  curl -s $url/metrics >"$runs/metrics.txt"
  tail -c 100000 /tmp/vllm.log | gzip >"$runs/vllm.log.gz"
  [ -n "${KEEP:-}" ] || stop
fi
tar -C /tmp --exclude=job.json --exclude='*.html' -czf "$out/$arm.tar.gz" "runs-$arm"
say "done"
