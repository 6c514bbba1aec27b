# The broker in a container. Build: docker build -t kohort .
# Run:   docker run -p 9092:9092 -p 9404:9404 -v kohort:/var/lib/kohort kohort
# docs/howto/operate.md explains the options. A test runs the commands of this file without a container.
FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN KOHORT_BUILD=compiled python -m pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/kohort --create-home kohort
COPY --from=build /wheels /wheels
RUN python -m pip install --no-cache-dir --no-index --find-links /wheels kohort && rm -rf /wheels
USER kohort
VOLUME /var/lib/kohort
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/ready', timeout=4)"]
ENTRYPOINT ["kohort"]
CMD ["serve", "--data-dir", "/var/lib/kohort/data", "--host", "0.0.0.0", "--allow-anonymous", "--metrics-port", "9404", "--log-format", "json"]
