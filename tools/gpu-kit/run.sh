#!/bin/sh
# Runs the GPU kit on this machine: run.sh [--short] [--out DIR] [--seconds N]. Needs a GPU's driver
# and a glibc of Debian 12 (2.36) or later. See GPU-KIT.md.
set -u
kit=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# Returns whether the system has a library; ldconfig is in /sbin, which users may not have in PATH.
has_library() {
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q "$1" && return 0
    for folder in /lib /lib64 /usr/lib /usr/lib64 /lib/*-linux-gnu /usr/lib/*-linux-gnu; do
        [ ! -e "$folder/$1" ] || return 0
    done
    return 1
}

# Lets the dynamic linker look into a folder too.
look_into() {
    LD_LIBRARY_PATH="$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
}

# The kit's own copies are used if the system has none.
has_library libgcc_s.so.1 || look_into "$kit/lib/gcc"
if [ "${GPU_KIT_LOADER:-}" = kit ] || ! has_library libvulkan.so.1; then
    look_into "$kit/lib/vulkan"
    GPU_KIT_LOADER=kit
else
    GPU_KIT_LOADER=system
fi
export GPU_KIT_LOADER

# Containers may hold a driver in a folder where no loader looks for it.
if [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}${VK_ADD_DRIVER_FILES:-}" ]; then
    found=
    for manifest in /usr/local/*/share/vulkan/icd.d/*.json /opt/*/share/vulkan/icd.d/*.json; do
        [ ! -e "$manifest" ] || found="${found:+$found:}$manifest"
    done
    if [ -n "$found" ]; then
        export VK_ADD_DRIVER_FILES="$found"
    fi
fi
[ ! -d /usr/local/nvidia/lib64 ] || look_into /usr/local/nvidia/lib64
# Mesa's drivers require it.
: "${XDG_RUNTIME_DIR:=/tmp}"
export XDG_RUNTIME_DIR

exec "$kit/bin/gpu-kit" "$@"
