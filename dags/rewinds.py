"""Rewind a pipeline.

Reprocess a streaming pipeline beside itself: a new job is fed history from the mirror, takes over from Kafka where
the history ends, is compared with the live job, and becomes live. Until the pointer moves, live never notices.

## Run it

1. Put the new code or settings into the pipeline's folder.
2. Trigger this DAG as it is: a **dry run**. The log of `plan` shows the range, what differs from live, the chunks,
   an estimate, and the plan's id.
3. Trigger it again with **Dry run** off; give the id as **Apply plan** to do exactly what was shown.
4. When `approve` waits, read the verdict in its form and answer. A *fail* needs a reason; an *error* cannot be
   approved: fix the cause and clear `validate`.
5. After `cut_over` the old job runs on as standby until the grace period ends. `python -m rewind status` shows all.

With **To** the run is a repair: only that range is reprocessed and, once approved, merged into live's output.

## When something goes wrong

| what | do |
| --- | --- |
| `plan` is red | its last line names the field and the cure; nothing was changed |
| another step is red, or the answer was no | the rewind is aborted by `abort_<pipeline>`; trigger a new run |
| the run was ended by hand or lost | trigger `abort_<pipeline>` with the id from the log (`rw-…`) |
| a step or the abort names an *orphan driver* | end it in the cluster, then clear the task: nothing starts beside it |
| `cut_over` is red after the pointer moved | clear it: from there it only goes forward |
| `observe` tells differences | look at the sample in its log; when asked for, the old job is live again by itself |
| the new job is not well | trigger `rollback_<pipeline>`: the old job is standby until its grace ends |
| the backfill disturbs others | pause or throttle it by command |

Any task can be cleared at any time: each step reads the registry and converges to the same state.
"""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import DAG, TaskGroup
from rewind_airflow import declared, form, notify, run
from rewind_airflow.announce import Announce
from rewind_airflow.approval import Approve
from rewind_airflow.submits import PlanSubmit, StepSubmit
from rewind_airflow.triggers import StartCandidate, TriggerAbort, TriggerRollback
from rewind_airflow.waits import CatchUp, Observe


def rewind_dag(pipeline: str) -> DAG:
    with DAG(
        dag_id=f"rewind_{pipeline}",
        description=f"Reprocess {pipeline} beside itself and switch to the result",
        doc_md=__doc__,
        schedule=None,
        params=form.params(),
        # A second rewind must be refused by its plan, with a reason. A limit of 1 would silently queue it.
        max_active_runs=16,
        default_args=run.RETRIES | notify.TASKS,
        tags=["rewind", pipeline],
    ) as dag:
        with TaskGroup("prepare", prefix_group_id=False):
            plan = PlanSubmit(task_id="plan", pipeline=pipeline)
            # Skips everything below, by whatever trigger rule: a dry run ends green here.
            go_on = ShortCircuitOperator(task_id="go_on", python_callable=run.goes_on)
            spin_up = StepSubmit(task_id="spin_up")
            backfill = StepSubmit(task_id="backfill")
        with TaskGroup("candidate", prefix_group_id=False):
            start = StartCandidate(task_id="start_candidate", pipeline=pipeline)
            # It decides by the plan: a start that was skipped because the supervisor runs already is no repair.
            catch_up = CatchUp(task_id="catch_up", trigger_rule="none_failed")
        with TaskGroup("judge", prefix_group_id=False):
            # A repair has no candidate stream, so the path by `catch_up` is skipped and that by `backfill` counts.
            validate = StepSubmit(task_id="validate", trigger_rule="none_failed_min_one_success")
            approve = Approve(task_id="approve", pipeline=pipeline)
        with TaskGroup("switch", prefix_group_id=False):
            cut_over = StepSubmit(task_id="cut_over")
            announce = Announce(task_id="announce", pipeline=pipeline)
            # An event that was emitted before a clear is skipped; the observation has to go on.
            observe = Observe(task_id="observe", trigger_rule="none_failed_min_one_success")
            # Red differences alone do not decide it: the task looks into the registry what was found and asked for.
            roll_back = TriggerRollback(task_id="roll_back", pipeline=pipeline, trigger_rule="one_failed")
        merge = StepSubmit(task_id="merge")
        # Red when a step before it failed, whatever became of the abort: a run is judged by the leaves of its graph.
        ended = EmptyOperator(task_id="ended", trigger_rule="none_failed_min_one_success")
        abort = TriggerAbort(task_id="abort", pipeline=pipeline, trigger_rule="one_failed")

        plan >> go_on >> spin_up >> backfill >> start >> catch_up >> validate
        backfill >> validate
        # Approval sits directly before the switch: anything between them would act on a stale verdict.
        validate >> approve >> [cut_over, merge]
        cut_over >> announce >> observe
        cut_over >> observe >> roll_back
        [observe, merge] >> ended
        # The failure of any step up to the switch starts the abort, but does not decide it: task states can be set by
        # hand, skipped or lost, so the task looks into the registry, and so does the abort itself. `announce` and
        # `observe` are left out: after the switch there is nothing to abort.
        [plan, go_on, spin_up, backfill, start, catch_up, validate, approve, cut_over, merge] >> abort
    form.keep_once(dag)
    return dag


for declared_pipeline in declared.good():
    rewind_dag(declared_pipeline.name)
