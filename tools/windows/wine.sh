#!/bin/bash
# wine.sh PROGRAM ARGUMENT...: runs a program for Windows in this system, which gets Wine first.
set -euo pipefail

command -v wine >/dev/null && command -v Xvfb >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        wine wine64 xvfb >/dev/null
}
# Wine's drive C:, for this run alone: ending it ends all programs of its prefix.
WINEPREFIX=$(mktemp --directory)
export WINEPREFIX
export WINEDEBUG="${WINEDEBUG:--all}"
# The C++ library is Microsoft's, which TensorFlow brings, because Wine's lacks functions. A crash
# ends the program without a debugger's window.
export WINEDLLOVERRIDES='winedbg=d;concrt140,msvcp140,vcruntime140,vcruntime140_1=n,b'
# Wine's own DX12 opens no device.
export WGPU_BACKEND=vulkan
# Builds with assertions give the driver names of objects, at which Wine's Vulkan ends the process.
export WGPU_DEBUG=0
export RUST_BACKTRACE=1
# Wine reaches Vulkan through its driver for windows, which asks for a display.
number=$(mktemp)
Xvfb -displayfd 1 -nolisten tcp >"$number" 2>/dev/null &
display=$!
until [ -s "$number" ]; do
    kill -0 "$display"
    sleep 0.1
done
DISPLAY=:$(cat "$number")
export DISPLAY
status=0
# A pipe for its output and none for its input: Windows's Python wants real handles.
wine "$@" </dev/null 2>&1 | cat || status=$?
wineserver --kill || true
kill "$display"
rm -rf "$WINEPREFIX" "$number"
exit "$status"
