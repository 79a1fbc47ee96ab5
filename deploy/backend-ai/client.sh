#!/usr/bin/env bash
# In a CPU session beside the service: a results vfolder at /home/work/results, OPENAI_API_KEY with the service's token.
#   ./client.sh https://my-service.apps.example offload
set -euo pipefail
host=$1 arm=$2 results=${RESULTS:-/home/work/results}
export LOADGEN_CACHE=${LOADGEN_CACHE:-$results/cache}
loadgen doctor --host "$host" --yes --json >"$results/doctor-$arm.json" || echo "doctor found something: $results/doctor-$arm.json"
for _ in 1 2 3 4 5 6; do
  loadgen run sweep.toml --host "$host" --arm "$arm" --yes --out "$results/$arm" ${LOADGEN_ARGUMENTS:-} || [ $? -eq 3 ]
done
[ ! -d "$results/off" ] || [ ! -d "$results/offload" ] || loadgen compare "$results/off" "$results/offload" -o "$results/compare.html" || [ $? -lt 5 ]
