"""Bring the demo's world up, play the scenario, and say how it ended."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from kafka.errors import KafkaError
from rich.console import Console
from sqlalchemy import select

from examples.demo import load, pipelines, summary, world
from examples.demo.errors import DemoError
from examples.demo.proof import faults
from examples.demo.scenario import Scenario, Story
from examples.demo.world import World
from rewind.core.errors import RefusedError, RewindError
from rewind.core.settings import Settings, from_environment
from rewind.local import broker, ports, stack
from rewind.local.voice import Voice
from rewind.local.waiting import Waiting
from rewind.registry import schema
from rewind.registry.snapshot import snapshot
from rewind.runtime.kafka.broker import Broker
from rewind.views.status import PipelineView

LAST_LINE = "REWIND DEMO:"
LONGEST = 900
"""Characters of a failure in the last line: the process, the end of its log, and what to do."""


@dataclass(frozen=True)
class Ground:
    """What there is before Airflow is up.

    Attributes:
        home: Home of the stack.
        folder: The demo's own folder.
        bootstrap: Address of the broker.
        names: What things will be called.
    """

    home: Path
    folder: Path
    bootstrap: str
    names: world.Names


def run(history: int, rate: int) -> int:
    """Play the demo and return its exit code: 0 only when everything was as it should be."""
    console, story, made, producing = Console(), Story(), None, None
    voice = Voice(console)
    try:
        with voice.beating():
            ground = _ground(voice)
            # The history is written while Airflow starts: both take their time.
            producing = load.start(ground.bootstrap, ground.names.topic, ground.folder, history, rate)
            made = _up(ground, voice)
            story.seconds["stack is up"] = round(time.monotonic() - story.began, 1)
            console.print(f"[green]stack is up[/] in {story.seconds['stack is up']:.1f} s: {made.stack.airflow_url}")
            Scenario(made, story).play(producing)
            _judge(story)
    except (RewindError, TimeoutError, KafkaError) as error:
        story.failure = str(error) or type(error).__name__
    except KeyboardInterrupt:
        story.failure = "interrupted"
    except Exception as error:  # noqa: BLE001 - whatever happens, the last line says how it ended
        console.print_exception()
        story.failure = f"{type(error).__name__}: {error}"
    finally:
        if producing is not None:
            producing.stop()
    return _end(console, story, made)


def _ground(voice: Voice) -> Ground:
    """Start the broker and choose names that nothing has yet."""
    home = stack.home()
    folder = home / "demo"
    load.stop_earlier(folder)
    folder.mkdir(parents=True, exist_ok=True)
    port = ports.parse(broker.PORT_FIELD, os.environ.get(broker.PORT_FIELD))
    with voice.doing("starting the broker …"):
        started = broker.start(home, port, jars=stack.jars(home, os.environ), waits=Waiting(voice))
    settings = from_environment({"REWIND_HOME": str(home), "REWIND_KAFKA_BOOTSTRAP": started.bootstrap})
    chosen = world.free_names(_deployed(settings), set(Broker(settings).topics()))
    return Ground(home, folder, started.bootstrap, chosen)


def _up(ground: Ground, voice: Voice) -> World:
    """Bring up the stack with the demo's own pipelines folder."""
    own, chosen = ground.folder / "pipelines", ground.names
    pipelines.copy_with_bug(stack.PROJECT / "include" / "pipelines", own, chosen.pipeline, chosen.topic, chosen.output)
    with voice.doing("starting Airflow …"):
        running = stack.up(ground.home, environment={**os.environ, "REWIND_PIPELINES": str(own)}, voice=voice)
    made = World(running, running.api(), chosen, ground.folder, voice)
    world.drain_earlier(made)
    return made


def _deployed(settings: Settings) -> set[str]:
    try:
        with snapshot(settings.registry_url) as connection:
            return set(connection.execute(select(schema.generations.c.pipeline).distinct()).scalars())
    except RefusedError:
        return set()


def _judge(story: Story) -> None:
    """Check what the parts left to the end.

    Raises:
        DemoError: The output or the verdict is not as it should be.
    """
    assert story.proof is not None
    assert story.rewind is not None
    assert story.rewind.verdict is not None
    found = story.proof.findings
    wrong = [f"the separate reader found {number} {kind}" for kind, number in found.counts.items() if number]
    wrong += [f"verdict: {fault}" for fault in faults(story.rewind.verdict, story.proof.planted_expected)]
    if wrong:
        raise DemoError("; ".join(wrong))


def _end(console: Console, story: Story, made: World | None) -> int:
    if made is not None:
        pipeline = _pipeline(made)
        console.print(f"Summary: {summary.write(made, story, pipeline)}")
        summary.tell(made, story, pipeline)
    if story.failure:
        # A failure of several lines ends with the line that says so.
        console.print(story.failure, markup=False, highlight=False)
        print(f"{LAST_LINE} FAIL {' '.join(story.failure.split())[:LONGEST]}")
        return 1
    assert story.live_after is not None
    print(f"{LAST_LINE} PASS {story.live_after.job_id} is live, {time.monotonic() - story.began:.0f} s")
    return 0


def _pipeline(made: World) -> PipelineView | None:
    try:
        return made.pipeline()
    except RewindError:
        return None
