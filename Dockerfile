# TensorFlow with tensorflow-wgpu and Mesa's Vulkan drivers: docs/INSTALL.md says how to run it.
#
#     docker build --tag tensorflow-wgpu .
#
# Both stages are Debian 12, so that the wheel finds the glibc that it was linked to.

FROM rust:1-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /sources
COPY . .
RUN python3 -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm
# libxext6 is what NVIDIA's driver, which its container toolkit mounts, needs besides.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libvulkan1 libxext6 mesa-vulkan-drivers \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir 'tensorflow>=2.16,<2.23' /wheels/*.whl
# The toolkit mounts the Vulkan driver with the capability graphics alone.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility
CMD ["python", "-m", "tensorflow_wgpu"]
