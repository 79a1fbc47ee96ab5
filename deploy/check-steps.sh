#!/usr/bin/env bash
# The Dockerfile's steps without Docker: build the wheel, install it into a fresh environment, and run as an unprivileged
# user on a read-only root with a tmpfs for /tmp. Needs root and unshare(1); the base image's own packages are not covered.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d /opt/loadgen-check.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
base=$("$python" -c 'import sys; print(sys.base_prefix)')
if [ "$base" != /usr ]; then # a Python in somebody's home cannot be read by another user
  cp -r "$base" "$work/python" && python=$work/python/bin/python3
fi
"$python" -m venv "$work/build" && "$work/build/bin/pip" install -q build
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$work/build/bin/python" -m build --wheel --outdir "$work/wheels" . >/dev/null
"$python" -m venv "$work/loadgen" && "$work/loadgen/bin/pip" install -q "$(echo "$work"/wheels/loadgen-*.whl)[otel]"
mkdir "$work/runs" "$work/cache" && chown 10001:0 "$work/runs" "$work/cache"
cat >"$work/run.sh" <<EOF
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /tmp
mount --bind "$work/runs" "$work/runs"
mount --bind "$work/cache" "$work/cache"
mount -o remount,bind,ro /
cd "$work/runs"
export HOME=/tmp LOADGEN_CACHE=$work/cache PYTHONDONTWRITEBYTECODE=1 PATH=$work/loadgen/bin:\$PATH LD_LIBRARY_PATH=$work/python/lib
exec setpriv --reuid 10001 --regid 0 --clear-groups --no-new-privs sh -ec '
  ! touch $work/loadgen/x 2>/dev/null
  loadgen --version
  loadgen demo --contexts 3 --turns 3 --tokens 3000 --output-tokens 32 --scale 20 -o . || [ \$? -eq 3 ]
  ls */report.html
'
EOF
unshare --mount bash "$work/run.sh"
