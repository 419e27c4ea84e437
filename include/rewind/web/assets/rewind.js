// One rewind, from its plan to what was deleted.
import { h } from "./dom.js";
import { buttons } from "./actions.js";
import { lagChart } from "./chart.js";
import { openable } from "./files.js";
import { airflow, badge, bar, behind, driving, facts, instant, link, rate, report, section, span, tab, table, vector, whole } from "./format.js";

export const path = (id) => `api/rewinds/${encodeURIComponent(id)}`;
export const title = (id) => `Rewind ${id}`;

export function page(body, id, done) {
  const rewind = body.rewind;
  return [
    h("h1", {}, "Rewind ", h("code", {}, rewind.id), " ", badge(rewind.state)),
    h("p", { class: "answer" }, rewind.waits ? `Waits: ${rewind.waits}` : standing(body)),
    buttons(id, body.offers, done),
    head(body, body.verdict),
    section("Steps", steps(body)),
    body.backfill && section("Backfill", backfill(body.backfill)),
    body.race && section("Catching up", race(body)),
    body.verdict && section("Verdict", verdict(body)),
    section("Deletions", deletions(body)),
    section("Logs", Object.entries(body.logs).map(([owner, found]) => h("div", { key: owner }, h("h3", {}, `Driver of ${owner}`), openable(`Logs of ${owner}`, found, (name) => `api/streams/${encodeURIComponent(owner)}/logs/${encodeURIComponent(name)}`)))),
    section("Plan", h("pre", { tabindex: "0", "aria-label": "Plan" }, body.plan.join("\n"))),
  ];
}

const standing = (body) => (body.rewind.state === "active" ? "It works." : `It is ${body.rewind.state}; ${body.live ?? "nothing"} is live.`);

function head({ rewind, pipeline, live, epoch }, judged) {
  return facts(
    ["Pipeline", pipeline], ["Kind", rewind.kind],
    ["Makes", link("generation", rewind.job_id)], ["Beside", rewind.live_job_id ? link("generation", rewind.live_job_id) : "none"],
    ["Live now", live ? `${live}, epoch ${epoch}` : "nothing"],
    judged && ["Verdict", badge(judged.verdict), ` ${judged.verdict === "none" ? judged.reason : Object.entries(judged.counts).filter(([, rows]) => Number(rows)).map(([name, rows]) => `${name} ${whole(rows)}`).join(", ")}`],
    ["Since", instant(rewind.created_at)], rewind.ended_at && ["Ended", instant(rewind.ended_at)],
    rewind.asked_by && ["Asked by", rewind.asked_by],
    rewind.reason && ["Reason", rewind.reason],
    ["Plan", h("code", {}, rewind.plan_id)], ["In Airflow", airflow(`dags/rewind_${pipeline}`, `rewind_${pipeline}`)],
  );
}

function steps({ steps: all }) {
  const rows = all.map((step) => [step.name, step.name, badge(step.state), step.attempt || "", step.seconds === null ? "" : span(step.seconds), step.cpu_seconds === null ? "" : `${whole(step.cpu_seconds)} s`, step.driver]);
  return [
    h("ol", { class: "lifecycle", key: "lifecycle", "aria-label": "Lifecycle" }, all.map((step) => h("li", { key: step.name, class: step.state, "aria-current": step.state === "running" ? "step" : null }, h("span", {}, step.name), h("small", {}, step.state)))),
    table("Steps by their newest attempt", ["step", "state", "attempt", "time", "CPU", "driver"], rows),
  ];
}

function backfill(found) {
  const rows = Object.entries(found.partitions).map(([p, [done, of]]) => [p, p, `${whole(done)} of ${whole(of)}`, bar(Number(done), Number(of), `partition ${p}`)]);
  return [
    facts(
      ["All", bar(Number(found.offsets_done), Number(found.offsets), "all partitions")],
      ["Records", whole(found.records_done)], ["Chunks", `${whole(found.chunks_done)} of ${whole(found.chunks)}`],
      ["Rate", rate(found.rate)], ["Left", left(found)],
      ["Limit", found.records_per_second ? `${whole(found.records_per_second)} records/s` : "none"],
      found.paused && ["State", badge("waiting"), " paused"],
    ),
    table("Backfill by partition", ["partition", "offsets", "done"], rows),
  ];
}

function left(found) {
  if (found.chunks_done === found.chunks) return "nothing of what was cut so far";
  return found.seconds_left === null ? "unknown" : `about ${span(found.seconds_left)}`;
}

function race({ race: found, candidate, replaced }) {
  const rows = [["candidate", candidate], ["live then", replaced]].filter(([, job]) => job).map(([what, job]) => [job.job_id, what, job.job_id, driving(job.driver), behind(job.lag), rate(job.rate), vector(job.position), job.watermark ? instant(job.watermark.at) : "none"]);
  return [lagChart(found), table("Both jobs", ["", "job", "driver", "lag", "rate", "position", "watermark"], rows)];
}

function verdict({ verdict: found, approval, observed, evidence, docs, rewind }) {
  const counts = Object.entries(found.counts).map(([name, rows]) => [name, name, whole(rows)]);
  return [
    h("p", { key: "verdict" }, badge(found.verdict), ` attempt ${found.attempt}, `, instant(found.at), found.reason && `: ${found.reason}`),
    table("Rows by class", ["class", "rows"], counts),
    h("p", { key: "range" }, found.verdict === "none" ? "Nothing was compared." : `Compared from ${vector(found.floor)} up to ${vector(found.ceiling)}`),
    approval && h("p", { key: "approval" }, badge(approval.answer), ` by ${approval.person || "unknown"}${approval.reason ? `: ${approval.reason}` : ""}`),
    observed && h("p", { key: "observed" }, observed.told),
    h("h3", { key: "evidence title" }, "Evidence"),
    openable("Evidence", evidence, (name) => report(rewind.id, name)),
    docs.length > 0 && h("p", { key: "docs", class: "links" }, docs.map((name) => tab(`api/rewinds/${encodeURIComponent(rewind.id)}/docs/${name}/index.html`, `Expectations, attempt ${name.replace("data-docs-", "")}`))),
  ];
}

function deletions({ deletions: gone, garbage }) {
  const due = garbage.flatMap((g) => g.things.map(([kind, name]) => [`${g.job_id} ${kind} ${name}`, name, kind, g.job_id, g.due_at ? instant(g.due_at) : "at the next collection", g.waits]));
  const done = gone.map((d, n) => [n, d.name, d.kind, d.job_id, badge(d.result), instant(d.at), d.detail]);
  return [table("Still to be deleted", ["name", "kind", "job", "when", "why it is there"], due), table("Deleted", ["name", "kind", "job", "result", "when", "detail"], done)];
}
