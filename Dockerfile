# A live learner: docker compose up, see docs/live.md
FROM python:3.12-slim

# torch for the CPU alone: the usual one brings gigabytes for GPUs
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY . /src
RUN pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" "/src[live]" \
    && rm -rf /src \
    && useradd --system --uid 10001 --no-create-home iblurry \
    && install --directory --owner iblurry --mode 0700 /data

USER 10001
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["iblurry", "live", "serve", "--data-dir", "/data", "--host", "0.0.0.0", "--log-format", "json"]
