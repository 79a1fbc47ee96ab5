#!/usr/bin/env bash
# Serve MODEL with vLLM on 127.0.0.1:PORT as "m8b", one arm at a time; returns when it is healthy.
# usage: serve.sh off|lmcache-cpu|lmcache-disk|native      stop it: kill -- -$(cat /tmp/vllm-PORT.pid)
#   PORT   default 8000; log in /tmp/vllm-PORT.log. CUDA_VISIBLE_DEVICES and the caller's CPU affinity choose its part of the machine
#   MODEL  folder of the model (default /opt/m8b; LOAD=dummy gives it random weights)
#   VLLM_PATH  PYTHONPATH under which vllm and lmcache are found, if they are not installed
#   GMU    --gpu-memory-utilization, which sets the KV pool (default 0.4: 352,288 tokens on an H200 with 8B weights)
#   GRAPHS=1  decode in CUDA graphs (whole steps of 1, 2, 4 or 8 sequences, nothing compiled); default: eager, the step is the host's work
#   CPUGB  memory of lmcache-cpu and native (default 72);  KVDIR, KVGB  folder and limit of lmcache-disk (/opt/kv, 53)
set -euo pipefail
arm=$1 PORT=${PORT:-8000}
CPUGB=${CPUGB:-72} KVDIR=${KVDIR:-/opt/kv} KVGB=${KVGB:-53} LOG=/tmp/vllm-$PORT.log
export PYTHONPATH=${VLLM_PATH:-} PYTHONHASHSEED=0 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
  LMCACHE_TRACK_USAGE=false LMCACHE_CHUNK_SIZE=256 VLLM_SERVER_DEV_MODE=1 VLLM_USE_FLASHINFER_SAMPLER=0
lmcache='{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}'
case $arm in
  off) connector= ;;
  lmcache-cpu)
    export LMCACHE_LOCAL_CPU=True LMCACHE_MAX_LOCAL_CPU_SIZE=$CPUGB
    connector=$lmcache ;;
  lmcache-disk) # the memory is a staging buffer here: nothing is served from it
    mkdir -p "$KVDIR"
    export LMCACHE_LOCAL_CPU=False LMCACHE_MAX_LOCAL_CPU_SIZE=24 LMCACHE_LOCAL_DISK="file://$KVDIR/" LMCACHE_MAX_LOCAL_DISK_SIZE=$KVGB
    connector=$lmcache ;;
  native)
    connector="{\"kv_connector\":\"OffloadingConnector\",\"kv_role\":\"kv_both\",\"kv_connector_extra_config\":{\"cpu_bytes_to_use\":${CPUGB}000000000}}" ;;
  *) echo "unknown arm $arm"; exit 2 ;;
esac
mode=(--enforce-eager)
[ -z "${GRAPHS:-}" ] || mode=(--compilation-config '{"mode":0,"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8]}')
setsid python3 -m vllm.entrypoints.openai.api_server --model "${MODEL:-/opt/m8b}" --served-model-name m8b --load-format "${LOAD:-dummy}" \
  --dtype bfloat16 --max-model-len 163840 --gpu-memory-utilization "${GMU:-0.4}" "${mode[@]}" --attention-backend FLASH_ATTN \
  --enable-prefix-caching --enable-prompt-tokens-details --host 127.0.0.1 --port "$PORT" \
  ${connector:+--kv-transfer-config "$connector"} >"$LOG" 2>&1 &
echo $! >"/tmp/vllm-$PORT.pid"
for _ in $(seq 300); do
  curl -sf -o /dev/null "http://127.0.0.1:$PORT/health" && { echo "$arm is up after $SECONDS s"; exit 0; }
  kill -0 "$(cat "/tmp/vllm-$PORT.pid")" 2>/dev/null || break
  sleep 1
done
tail -40 "$LOG"
exit 1
