#!/usr/bin/env bash
# Build the committed tree twice and compare the archives byte for byte. The second build starts from an empty cache,
# in a directory with another name and depth, with another HOME, locale, time zone and umask, and as another user when
# this one may switch (root to nobody).
#
# usage: scripts/check_reproducible.sh [RECIPE]    (MIRROR=URL as for make package)
# exit:  0 the same bytes, 3 different bytes, else the failing build's own code
set -euo pipefail
cd "$(dirname "$0")/.."
recipe=${1:-recipes/gfx1151-bf16.yaml}
work=$(mktemp -d "${TMPDIR:-/tmp}/aima-reproduce.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"

first="$work/a"
second="$work/another place/b"
git clone -q . "$first"
mkdir -p "$work/another place" "$work/home" "$work/cache"
git clone -q . "$second"

echo "first build: $first"
make -s -C "$first" package RECIPE="$recipe" ${MIRROR:+MIRROR="$MIRROR"} >"$work/first.log" 2>&1 || { code=$?; tail -30 "$work/first.log"; exit $code; }

build=(env -i PATH="$PATH" HOME="$work/home" XDG_CACHE_HOME="$work/cache" LC_ALL=C.UTF-8 TZ=Asia/Tokyo
  bash -c 'umask 077; git config --global --add safe.directory "*"; exec make -s -C "$0" package RECIPE="$1" ${2:+MIRROR="$2"}'
  "$second" "$recipe" "${MIRROR:-}")
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chown -R 65534:65534 "$second" "$work/home" "$work/cache"
  build=(setpriv --reuid=65534 --regid=65534 --clear-groups "${build[@]}")
fi
echo "second build: $second, empty cache, ${build[0]}"
"${build[@]}" >"$work/second.log" 2>&1 || { code=$?; tail -30 "$work/second.log"; exit $code; }

(cd "$first/dist" && sha256sum ./*.tar.zst) | tee "$work/first.sha256"
(cd "$second/dist" && sha256sum ./*.tar.zst) | tee "$work/second.sha256"
if ! cmp -s "$work/first.sha256" "$work/second.sha256"; then
  echo "the two builds differ; compare them with: aimabuild diff $first/dist/*.tar.zst $second/dist/*.tar.zst" >&2
  trap - EXIT
  exit 3
fi
echo "the same bytes"
