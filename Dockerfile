# The environment, for a checkout that is mounted into it: docs/installing.md.
FROM debian:12-slim

# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git make python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && git config --system safe.directory '*'

WORKDIR /opt/generalist-bench
COPY Makefile README.md pyproject.toml constraints.txt constraints-cuda.txt ./
ARG TORCH=
RUN PIP_NO_CACHE_DIR=1 make .venv/ready TORCH="$TORCH"
# The code is that of the folder in which a command is given.
ENV PATH=/opt/generalist-bench/.venv/bin:$PATH PYTHONPATH=.
