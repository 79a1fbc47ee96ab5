#!/usr/bin/env bash
# Serve the lab's model with real vLLM on 127.0.0.1:$PORT (default 8000) and wait until it answers (60 to 130 s).
# usage: up.sh off|lmcache
#   KV_BLOCKS  KV pool in blocks of 128 tokens (default 1300, which holds the longest prompt once)
#   MAX_LEN    longest prompt in tokens (default 163840); the pool must hold one and a block more
#   LMCache's /metrics and /status: http://127.0.0.1:6580; its files: $LAB/kv (they outlive a restart; delete them for a cold start)
set -euo pipefail
arm=${1:?usage: up.sh off|lmcache}; LAB=${LAB:-$PWD/.lab}; PORT=${PORT:-8000}
python=$LAB/venv/bin/python; mkdir -p "$LAB/run" "$LAB/kv"
curl -sf -o /dev/null "http://127.0.0.1:$PORT/health" && { echo "something answers on port $PORT already"; exit 1; }
export PYTHONPATH=$LAB/lmcache HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 LMCACHE_TRACK_USAGE=false
export VLLM_SERVER_DEV_MODE=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} # on two cores a second thread starves the API server: chunks come in one burst

launch() { # NAME COMMAND…: in a process group of its own, which down.sh ends as a whole; behind the client on cores they share
  local name=$1; shift
  setsid nice -n 5 "$@" >"$LAB/run/$name.log" 2>&1 &
  echo $! >"$LAB/run/$name.pid"
}
await() { # NAME URL SECONDS
  for _ in $(seq $((2 * $3))); do
    curl -sf -o /dev/null "$2" && return
    kill -0 "$(cat "$LAB/run/$1.pid")" 2>/dev/null || break
    sleep 0.5
  done
  echo "$1 did not come up; the end of its log:"; tail -25 "$LAB/run/$1.log"; exit 1
}

connector=()
case $arm in
  off) ;;
  lmcache) # first: without it vLLM waits for it for ever
    launch lmcache "$python" -m lmcache.cli.main server --host 127.0.0.1 --port 6555 --http-port 6580 --chunk-size 256 \
      --l1-size-gb 1 --l1-init-size-gb 1 --eviction-policy LRU --supported-transfer-mode engine_driven \
      --l2-adapter "{\"type\":\"fs\",\"base_path\":\"$LAB/kv\"}"
    await lmcache http://127.0.0.1:6580/healthcheck 60
    connector=(--kv-transfer-config '{"kv_connector":"LMCacheMPConnector","kv_role":"kv_both","kv_connector_extra_config":{"lmcache.mp.host":"tcp://127.0.0.1","lmcache.mp.port":6555}}') ;;
  *) echo "unknown arm $arm"; exit 2 ;;
esac
launch vllm "$python" -m vllm.entrypoints.openai.api_server --model "$LAB/model" --served-model-name micro --load-format dummy \
  --dtype float32 --max-model-len "${MAX_LEN:-163840}" --max-num-batched-tokens 8192 --num-gpu-blocks-override "${KV_BLOCKS:-1300}" \
  --enable-prefix-caching --enable-prompt-tokens-details --enforce-eager --enable-auto-tool-choice --tool-call-parser hermes \
  --host 127.0.0.1 --port "$PORT" "${connector[@]}"
await vllm "http://127.0.0.1:$PORT/health" 300
echo "vLLM answers on port $PORT ($arm)"
