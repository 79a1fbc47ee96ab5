#!/usr/bin/env bash
# Serve the lab's model, with random weights, by llama.cpp's own server on 127.0.0.1:$PORT (default 8080); builds it first, once.
# usage: llama.sh [llama-server options]      stop: kill $(cat $LAB/run/llama.pid)
# Needs cmake, ninja, a C++ compiler and half an hour of two cores. The source is what llama-cpp-python carries on the package index.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); LAB=${LAB:-$PWD/.lab} PORT=${PORT:-8080} build=$LAB/llama/build
mkdir -p "$LAB/run"
if [ ! -x "$build/bin/llama-server" ]; then
  python3 -m venv "$LAB/llama/venv"
  "$LAB/llama/venv/bin/pip" install --quiet gguf==0.19.0 numpy tokenizers
  "$LAB/llama/venv/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$LAB/llama" llama-cpp-python==0.3.36
  mkdir -p "$LAB/llama/source"
  tar -xzf "$LAB"/llama/llama_cpp_python-0.3.36.tar.gz -C "$LAB/llama/source" --strip-components=1
  cmake -S "$LAB/llama/source/vendor/llama.cpp" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_SERVER=ON \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_WEBUI=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DGGML_OPENMP=OFF
  ninja -C "$build" llama-server
fi
if [ ! -e "$LAB/llama/micro.gguf" ]; then
  "$LAB/llama/venv/bin/python" "$here/../model.py" "$LAB/llama/model" --shape micro
  "$LAB/llama/venv/bin/python" "$here/../gguf_model.py" "$LAB/llama/model" "$LAB/llama/micro.gguf"
fi
curl -sf -o /dev/null "http://127.0.0.1:$PORT/health" && { echo "something answers on port $PORT already"; exit 1; }
setsid "$build/bin/llama-server" --model "$LAB/llama/micro.gguf" --alias micro --host 127.0.0.1 --port "$PORT" --ctx-size 65536 --parallel 4 \
  --threads 1 --metrics --jinja "$@" >"$LAB/run/llama.log" 2>&1 &
echo $! >"$LAB/run/llama.pid"
for _ in $(seq 120); do
  curl -sf -o /dev/null "http://127.0.0.1:$PORT/health" && { echo "llama.cpp answers on port $PORT"; exit 0; }
  kill -0 "$(cat "$LAB/run/llama.pid")" 2>/dev/null || break
  sleep 0.5
done
tail -25 "$LAB/run/llama.log"; exit 1
