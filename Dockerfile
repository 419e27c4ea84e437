# One image for all of Rewind's services: Airflow's, Spark's master, workers and history server. What runs is chosen by
# the command. The environment and the jars are those of the locks, put in place by the same script as on a laptop.
FROM python:3.11.14-slim-bookworm AS base
ENV DEBIAN_FRONTEND=noninteractive \
    JAVA_HOME=/usr/lib/jvm/java-17-openjdk \
    PATH=/opt/rewind/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    REWIND_JARS=/opt/rewind/jars
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && ln -s "$(dirname "$(dirname "$(readlink -f /usr/bin/java)")")" "$JAVA_HOME" \
    && useradd --uid 50000 --create-home rewind \
    && install -d -o rewind /opt/rewind /rewind
WORKDIR /opt/rewind
USER rewind

FROM base AS built
# First what changes seldom: a change of code then takes neither a download nor the start-up archive.
COPY --chown=rewind requirements-setup.txt requirements.txt jars.xml jars.sha256 ./
COPY --chown=rewind scripts scripts
COPY --chown=rewind include/rewind include/rewind
# Compiled here once, for nothing that runs in a container may write beside the code.
RUN UV_COMPILE_BYTECODE=1 REWIND_HOME=/tmp/setup python scripts/setup.py --runtime && rm -rf /tmp/setup ~/.cache

FROM base
COPY --from=built --chown=rewind /opt/rewind/.venv .venv
COPY --from=built --chown=rewind /opt/rewind/jars jars
COPY --chown=rewind deploy deploy
COPY --chown=rewind jobs jobs
COPY --chown=rewind dags dags
COPY --chown=rewind plugins plugins
COPY --chown=rewind include include
ENV PYTHONPATH=/opt/rewind/include \
    PYSPARK_PYTHON=/opt/rewind/.venv/bin/python \
    REWIND_JOBS=/opt/rewind/jobs \
    REWIND_PIPELINES=/opt/rewind/include/pipelines \
    SPARK_CONF_DIR=/opt/rewind/deploy/spark
