# The sidecar alone: no Java, no Spark. Two stages, so that no compiler stays in the image.
FROM python:3.12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /src
COPY pyproject.toml setup.py README.md LICENSE ./
COPY sidecar ./sidecar
RUN python -m venv /opt/sidecar && /opt/sidecar/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/sidecar /opt/sidecar
ENV PATH=/opt/sidecar/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 sidecar
USER sidecar
EXPOSE 9092 9400
ENTRYPOINT ["sidecar"]
CMD ["run"]
