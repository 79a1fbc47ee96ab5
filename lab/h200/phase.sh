#!/usr/bin/env bash
# One arm on one GPU: serve it, measure with loadgen, stop it. Leaves OUT/ARM.tar.gz.
# usage: phase.sh ARM OUT [STEP…]      ARM: off | lmcache-cpu | lmcache-disk | native
#   STEP  sweep:N:TURNS   N contexts of 140,000 tokens in sweep order        repeats:FROM-TO  13 contexts of 30,000 tokens, once a repetition
#         controls:FROM-TO  runs in which no tier can gain                    cold:TOKENS      cold prompts of one length, for the fit
#         closed:WIDTH      recorded sessions of TRACE, 60 s                  taxes[:OFF_URL]  the write taxes
#         tpot:FROM-TO      long answers, for TPOT: 2 contexts of 140,000 tokens, 13 of 30,000
#         counters          differences of the server's own counters so far; what is left out is a default list
#   DEADLINE  epoch second at which the phase ends (default: 560 s from now). What does not fit is skipped and said. A phase that is
#             called again goes on where it stopped; it finds the server of its arm if that still runs (KEEP=1 leaves it running).
#   PORT (8000), CUDA_VISIBLE_DEVICES, CORES (a list for taskset): the phase's part of a machine with several GPUs
#   GRAPHS=1  is a server of its own, see serve.sh: its runs lie in a folder of their own
#   LOADGEN   command that runs loadgen (default: python3 -m loadgen);  TRACE  trace of the closed loop
set -uo pipefail
arm=$1 out=$2 LOADGEN=${LOADGEN:-python3 -m loadgen} PORT=${PORT:-8000} DEADLINE=${DEADLINE:-$(($(date +%s) + 560))}
export PORT
shift 2
here=$(cd "$(dirname "$0")" && pwd)
[ -z "${CORES:-}" ] || taskset -cp "$CORES" $$ >/dev/null
label=$arm${GRAPHS:+-graphs}-$PORT
runs=/tmp/runs-$label sets=/tmp/contexts pid=/tmp/vllm-$PORT.pid served=/tmp/vllm-$PORT.arm; mkdir -p "$runs" "$sets" "$out"
url=http://127.0.0.1:$PORT
say() { echo "[$(date +%T)] $label $*"; }
left() { echo $((DEADLINE - $(date +%s))); }

# step NAME NEEDS COMMAND…: once, if NEEDS seconds are left, and cut at the end of the phase
step() {
  local name=$1 needs=$2; shift 2
  [ -e "$runs/$name.done" ] && return
  [ "$(left)" -ge "$needs" ] || { say "$name skipped: $(left) s left, $needs needed"; return; }
  say "$name"
  timeout --signal=TERM --kill-after=15 "$(($(left) - 10))" "$@" >"$runs/$name.out" 2>&1
  local code=$?
  # exit 3: the run is INVALID or INCONCLUSIVE by loadgen's own rules; it is kept and its report says why
  case $code in 0 | 3) touch "$runs/$name.done" ;; *) say "$name ended with $code"; tail -5 "$runs/$name.out" ;; esac
}
play() { # NAME NEEDS ARGUMENTS…: one run
  local name=$1 needs=$2; shift 2
  step "$name" "$needs" $LOADGEN run --host "$url" --tokenizer server --arm "$arm" --run-dir "$runs/$name" "$@"
}
contexts() { # NAME TOKENS N [RECIPE]: exact by this server's own count; the same in every arm
  flock "$sets/lock" sh -c "[ -e '$sets/$1/manifest.json' ] || $LOADGEN corpus build ${4:-stdlib} -n $3 --tokens $2 --tokenizer server --host $url -o '$sets/$1'" 2>&1 | tail -1
}
span() { seq "${1%-*}" "${1#*-}"; }
one() { # STEP
  local kind=${1%%:*} rest=${1#*:} rep
  case $kind in
    sweep) local n=${rest%:*} turns=${rest#*:} needs
      needs=$((20 + n * (9 + 4 * turns))); [ "$arm" = off ] && [ "$n" -ge 3 ] && needs=$((20 + 13 * n * turns))
      play "sweep-n$n" "$needs" --contexts "$sets/140000" --sessions "$n" --turns "$turns" --output-tokens 32 ;;
    repeats) for rep in $(span "$rest"); do # overflow the pool as 4 contexts of 140,000 do
        play "r-$rep" 40 --contexts "$sets/30000" --sessions 13 --turns 2 --output-tokens 4 --rep "$rep"
      done ;;
    controls) for rep in $(span "$rest"); do
        play "control-chat-$rep" 20 --sessions 40 --turns 1 --context-tokens 2000 --output-tokens 16 --rep "$rep"
        play "control-shared-$rep" 25 --contexts "$sets/shared" --nonce-scope run --sessions 12 --turns 2 --output-tokens 16 --rep "$rep"
      done ;;
    tpot) for rep in $(span "$rest"); do
        play "tpot-140k-$rep" 60 --contexts "$sets/140000" --sessions 2 --turns 3 --output-tokens 128 --rep "$rep"
        play "tpot-30k-$rep" 60 --contexts "$sets/30000" --sessions 13 --turns 2 --output-tokens 64 --rep "$rep"
      done ;;
    cold) play "cold-$rest" 30 --sessions 2 --turns 1 --context-tokens "$rest" --output-tokens 16 ;;
    closed) play "closed-u$rest" 80 --trace "$TRACE" --schedule closed -u "$rest" --mid-start --tool-gap-cap 2 --human-gap-cap 5 --output-tokens 32 -t 60 ;;
    taxes) local off=${1#taxes}
      step taxes 60 sh -c "$LOADGEN doctor --host $url --probe-tokens 30000 --taxes ${off:+--off-host ${off#:}} --json >$runs/taxes.json" ;;
    doctor) step doctor 20 sh -c "$LOADGEN doctor --host $url --context-tokens 140000 --json >$runs/doctor.json" ;;
    *) say "unknown step $1"; exit 2 ;;
  esac
}
serving() { curl -sf -o /dev/null "$url/health" && [ "$(cat "$served" 2>/dev/null)" = "$label" ]; }
stop() { [ -e "$pid" ] && kill -TERM -- -"$(cat "$pid")" 2>/dev/null && sleep 4; kill -KILL -- -"$(cat "$pid" 2>/dev/null)" 2>/dev/null; rm -f "$pid" "$served"; }

[ $# -gt 0 ] || case $arm in
  off) set -- doctor sweep:1:5 sweep:2:5 sweep:3:5 sweep:4:5 cold:10000 cold:20000 cold:40000 cold:80000 controls:1-1 repeats:1-5 ${TRACE:+closed:2 closed:8} ;;
  lmcache-disk) set -- doctor sweep:1:5 sweep:2:5 sweep:3:3 ;;
  *) set -- doctor taxes sweep:1:5 sweep:2:5 sweep:3:5 sweep:4:5 sweep:5:5 controls:1-1 repeats:1-5 ${TRACE:+closed:2 closed:8} ;;
esac
if serving; then say "still runs"; else
  stop
  bash "${SERVE:-$here/serve.sh}" "$arm" 2>&1 | tail -25
  echo "$label" >"$served"
  serving || { say "did not come up"; cp "/tmp/vllm-$PORT.log" "$out/$label-vllm.log"; exit 1; }
  say "serves"
fi
contexts 140000 140000 5; contexts 30000 30000 13
sed -e 's/120_000/30_000/' "$here/../../corpora/shared.toml" >/tmp/shared.toml # one prefix of 30,000 tokens, 4,000 of one's own
contexts shared 34000 12 /tmp/shared.toml
for each; do one "$each"; done
curl -s "$url/metrics" >"$runs/metrics.txt"
tail -c 100000 "/tmp/vllm-$PORT.log" | gzip >"$runs/vllm.log.gz"
[ -n "${KEEP:-}" ] || stop
tar -C /tmp --exclude=job.json --exclude='*.html' -czf "$out/$label.tar.gz" "runs-$label"
say "done"
