"""Faults of what acts on the world: broker, bundles, drivers, the registry's database, secrets."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, LOCK, ORDER, REACTION, VALUE, Fault

FAULTS = (
    Fault("topic-with-another-id-deleted", GUARD, "Broker.delete_topic", "if found != topic_id:", "if False:"),
    Fault(
        "refused-positions-taken-for-committed", GUARD, "Broker.commit", "        if refused:\n", "        if False:\n"
    ),
    Fault(
        "missing-right-passed-over",
        GUARD,
        "Broker.check_rights",
        "if granted is not None and right not in granted:",
        "if False:",
    ),
    Fault("hidden-settings-taken-for-none", GUARD, "Broker._config", "if not entries and", "if False and"),
    Fault("hidden-group-taken-for-none", GUARD, "Broker.group_state", "if state is None:", "if False:"),
    Fault("useless-option-passed-over", GUARD, "kafka_access._check_protocol", "    if useless:\n", "    if False:\n"),
    Fault("key-read-by-others", GUARD, "kafka_access._check_pem", 'secret_file.read(path, f"{FIELD}: {name}")', "pass"),
    Fault(
        "password-ends-the-login-line", VALUE, "kafka_access._quoted", "_ESCAPED.get(character, character)", "character"
    ),
    Fault(
        "driver-with-airflows-keys",
        GUARD,
        "driver_environment.inherited",
        "if any(fnmatchcase(key, name) for name in names)",
        "if names",
    ),
    Fault("output-with-a-retention", VALUE, "Broker.create_topic", '"retention.ms": "-1", ', ""),
    Fault(
        "any-client-option", GUARD, "kafka_access._parsed", "        if name not in OPTIONS:\n", "        if False:\n"
    ),
    Fault(
        "missing-broker-for-a-failure",
        REACTION,
        "Broker._reaching",
        "except (KafkaError, OSError) as error:",
        "except ZeroDivisionError as error:",
    ),
    Fault("secret-read-by-others", GUARD, "secret_file.read", "if path.stat().st_mode & 0o077:", "if False:"),
    Fault("empty-token-opens", GUARD, "read_token.bears", "bool(token) and ", ""),
    Fault("short-token", GUARD, "read_token._token", "if len(token) < SHORTEST:", "if False:"),
    Fault("any-token-opens", GUARD, "read_token.bears", ' and scheme.lower() == "bearer" and same', ""),
    Fault("changed-file-of-a-bundle", GUARD, "bundle.verified", "    if changed:\n", "    if False:\n"),
    Fault(
        "another-bundle",
        GUARD,
        "bundle.verified",
        "if _hash(json.dumps(files, sort_keys=True).encode())[:16] != expected:",
        "if False:",
    ),
    Fault("file-added-to-a-bundle", COMPARISON, "bundle.verified", "files.keys() | found.keys()", "files.keys()"),
    Fault("module-from-elsewhere", GUARD, "check_origin", "if strangers or not ours:", "if not ours:"),
    Fault("checkout-before-the-bundle", VALUE, "submit.make", '"PYTHONPATH": "",', ""),
    Fault(
        "registry-at-its-old-place",
        GUARD,
        "_refuse_replaced",
        'if record.info["file"] != _identity(file):',
        "if False:",
    ),
    Fault("connection-across-a-fork", GUARD, "database.engine", "os.getpid()", "0"),
    Fault("reader-that-writes", GUARD, "_begin_on_sqlite", '"PRAGMA query_only=ON", ', ""),
    Fault("reader-takes-the-lock-of-the-writer", LOCK, "_begin_on_sqlite", "if not _reads(connection):", "if True:"),
    Fault("writer-without-the-lock", LOCK, "_begin_on_sqlite", "if not _reads(connection):", "if False:"),
    Fault("connection-that-never-writes-again", EFFECT, "_writes_again", '"query_only=OFF", ', ""),
    Fault("transaction-begun-late", LOCK, "_begin_immediate", "BEGIN IMMEDIATE", "BEGIN"),
    Fault(
        "damaged-registry-for-a-bug",
        REACTION,
        "database._transaction",
        "if type(error) not in (DatabaseError, OperationalError) and not error.connection_invalidated:",
        "if True:",
    ),
    Fault("newer-protocol-spoken", GUARD, "check_protocol", "if number > PROTOCOL:", "if False:"),
    Fault(
        "missing-registry-made-anew",
        GUARD,
        "_refuse_missing",
        "if named.get_backend_name()",
        "if False and named.get_backend_name()",
    ),
    Fault("death-of-another-token-declared", GUARD, "declared_dead.declare", "if found.token != token:", "if False:"),
    Fault("lease-ended-before-its-driver", GUARD, "declared_dead._refuse_cut_off", "if now() < ends:", "if False:"),
    Fault("death-without-a-reason", GUARD, "declared_dead.declare", "if not reason.strip():", "if False:"),
    Fault("token-stays-after-a-death", EFFECT, "declared_dead._record", "token=lost.token + 1", "token=lost.token"),
    Fault(
        "second-driver-beside-a-starting-one",
        GUARD,
        "supervise._living",
        "if streams.starting(stream, lease, now()):",
        "if False:",
    ),
    Fault(
        "start-on-another-host-passed-over",
        GUARD,
        "streams.starting",
        "return not given_back and at - stream.launched_at < START",
        "return False",
    ),
    Fault("silent-host-for-a-living-one", GUARD, "leases.silent", " or at - lease.renewed_at <= SILENCE", " or True"),
    Fault(
        "last-words-of-another-driver",
        COMPARISON,
        "supervise.look",
        "ended is not None and ended.launched == stream.launched",
        "ended is not None",
    ),
    Fault(
        "driver-started-while-draining", GUARD, "supervise._blocked", "if stream.wish == streams.DRAIN:", "if False:"
    ),
    Fault(
        "quarantined-stream-started", GUARD, "supervise._blocked", "if stream.quarantined_at is not None:", "if False:"
    ),
    Fault("unknown-driver-left-alive", EFFECT, "supervise.launch", "os.killpg(started.pid, signal.SIGKILL)", "pass"),
    Fault(
        "clock-set-back-stops-a-stream",
        COMPARISON,
        "supervise._blocked",
        " <= streams.LONGEST_PAUSE",
        " <= timedelta.max",
    ),
    Fault("signal-to-a-pid-used-again", GUARD, "processes.send", "if process_of(process.pid) == process:", "if True:"),
    Fault(
        "wave-cut-twice",
        GUARD,
        "chunk_log.add_wave",
        "if connection.execute(select(_table.c.number).where(mine & (_table.c.wave == wave)).limit(1)).first():",
        "if False:",
    ),
    Fault(
        "mirror-commit-of-another-topic-id",
        GUARD,
        "mirror_log.state",
        "[commit for commit in made if commit.topic_id == topic.id]",
        "list(made)",
    ),
    Fault("holes-of-a-plain-topic-legal", COMPARISON, "mirror_log.state", "topic.compacted or transactional", "True"),
    Fault(
        "deletion-of-another-topic-id-legal",
        COMPARISON,
        "mirror_log.deletions",
        " & (table.c.topic_id == topic_id)",
        "",
    ),
    Fault(
        "night-of-another-sample-goes-on",
        COMPARISON,
        "frontier_before",
        "(_table.c.sample_hash == night.sample.hash) & ",
        "",
    ),
    Fault("unanswered-night-goes-on", GUARD, "frontier_before", " & answered", ""),
    Fault(
        "looks-by-the-order-of-text",
        ORDER,
        "observation._looks",
        "key=lambda row: int(row.name.removeprefix(_LOOK))",
        "key=lambda row: row.name",
    ),
    Fault(
        "frontier-of-the-first-look", ORDER, "observation.frontier", 'bodies[-1]["frontier"]', 'bodies[0]["frontier"]'
    ),
)
