# The image of `make image`, for those who have a container engine: the same recipe (images/), the same recorded
# packages, the same files. The base image only runs the recipe; nothing of it is in the result.
FROM --platform=$BUILDPLATFORM debian:trixie-slim AS recipe
ARG TARGETARCH
COPY tools/uv.txt /
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv \
 && python3 -m venv /opt/uv && /opt/uv/bin/pip install --no-cache-dir --require-hashes -r /uv.txt
WORKDIR /source
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN /opt/uv/bin/uv sync --locked --no-dev --no-install-project --python /usr/bin/python3
COPY src src
COPY images images
RUN /opt/uv/bin/uv run --locked --no-dev --python /usr/bin/python3 python -m images unpack --arch ${TARGETARCH} /image

FROM scratch
COPY --from=recipe /image /
LABEL org.opencontainers.image.title="gpu-control-plane" \
      org.opencontainers.image.description="Controller and node agent of the GPU control plane for Kubernetes" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/usr/local/bin:/usr/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /
USER 64535:64535
ENTRYPOINT ["/usr/local/bin/gpu-control-plane"]
