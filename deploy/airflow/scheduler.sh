#!/bin/sh
# Runs the scheduler, and again when it crashed: were the container to end with it, every driver would end too. When the
# container is stopped the scheduler goes first, since its supervisors would start drivers again; then the drivers, each
# after its batch. Both fit into the service's stop_grace_period.

stop() {
    kill -TERM "$scheduler"
    waited=0
    while kill -0 "$scheduler" 2>/dev/null && [ "$waited" -lt 30 ]; do
        sleep 1
        waited=$((waited + 1))
    done
    python -c 'import os
from rewind.runtime.drivers import supervise
from rewind.core.settings import from_environment
supervise.stop_all(from_environment(os.environ))'
    exit 0
}

trap stop TERM INT
while :; do
    airflow scheduler --skip-serve-logs &
    scheduler=$!
    wait "$scheduler"
    sleep 1
done
