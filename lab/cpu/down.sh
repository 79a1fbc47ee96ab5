#!/usr/bin/env bash
# End what up.sh started, and only that.
LAB=${LAB:-$PWD/.lab}
for name in vllm lmcache; do
  file=$LAB/run/$name.pid
  [ -e "$file" ] || continue
  group=$(cat "$file")
  kill -TERM -- "-$group" 2>/dev/null
  for _ in $(seq 20); do kill -0 -- "-$group" 2>/dev/null || break; sleep 0.5; done
  kill -KILL -- "-$group" 2>/dev/null
  rm -f "$file"
done
true
