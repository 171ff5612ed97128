# The sidecar alone: no Java, no Spark. Two stages, so that no compiler stays in the image.
# Build from the repository's root:  docker build -t kafka-group-sidecar:0.1.0 .
#
# The base image is pinned by its exact tag. A tag can be moved, a digest cannot: where that matters, take the digest with
#   docker buildx imagetools inspect python:3.12.12-slim-bookworm --format '{{.Manifest.Digest}}'
# and build with --build-arg PYTHON=3.12.12-slim-bookworm@sha256:...
ARG PYTHON=3.12.12-slim-bookworm

FROM python:${PYTHON} AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /src
RUN python -m venv /opt/build && python -m venv /opt/sidecar
# The dependencies first: they change less often than the source, and each is checked against its hash.
COPY requirements ./requirements
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements/build.lock \
    && /opt/sidecar/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/sidecar.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY sidecar ./sidecar
RUN /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps -w /wheels . \
    && /opt/sidecar/bin/pip install --no-cache-dir --no-index --no-deps /wheels/*.whl \
    # Without a compiler the kernels would be left out silently: an image is to have them.
    && /opt/sidecar/bin/python -c 'from sidecar.native import COMPILED; assert COMPILED' \
    && /opt/sidecar/bin/pip uninstall -y pip

FROM python:${PYTHON}
COPY --from=build /opt/sidecar /opt/sidecar
# It writes nothing but its log, so the root may be read-only. Health checks ask the admin address.
ENV PATH=/opt/sidecar/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SIDECAR_ADMIN=0.0.0.0:9400
RUN useradd --system --uid 10001 sidecar
# As a number: Kubernetes can tell from it that this is not root.
USER 10001
EXPOSE 9092 9400
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=4 CMD ["sidecar", "health", "127.0.0.1:9400"]
ENTRYPOINT ["sidecar"]
CMD ["run"]
