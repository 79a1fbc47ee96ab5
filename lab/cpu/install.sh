#!/usr/bin/env bash
# Install vLLM's CPU build and LMCache into $LAB (default .lab), once: 1 to 4 minutes, 2.6 GB. Needs python3.11 and AVX2.
#   TORCH_INDEX  where torch's CPU build is (default: PyTorch's own index); empty where pip finds it already
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); LAB=${LAB:-$PWD/.lab}
TORCH_INDEX=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}
[ -e "$LAB/.installed" ] && { echo "$LAB is installed"; exit 0; }
python3.11 -m venv "$LAB/venv"
"$LAB/venv/bin/pip" install --quiet --no-cache-dir --no-deps --requirement "$here/requirements.txt" \
  ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"}
# LMCache asks for CUDA builds of what vLLM already brought: in a folder of its own, without its dependencies
"$LAB/venv/bin/pip" install --quiet --no-cache-dir --no-deps --target "$LAB/lmcache" lmcache==0.5.6 \
  aiofile==3.12.3 aiofiles==25.1.0 caio==0.12.10 nvtx==0.2.17 redis==8.1.0 sortedcontainers==2.4.0 \
  opentelemetry-exporter-prometheus==0.66b2 awscrt==0.38.1
"$LAB/venv/bin/python" "$here/../model.py" "$LAB/model" --shape micro
touch "$LAB/.installed"
