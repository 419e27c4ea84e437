// Each pipeline on one card.
import { h } from "./dom.js";
import { TONES, ago, airflow, badge, bar, behind, driving, facts, instant, link, rate, report, span, tab, table } from "./format.js";

export const path = () => "api/overview";
export const title = () => "Overview";

export function page(body) {
  if (!body.pipelines.length) return [h("h1", {}, "Pipelines"), h("p", {}, "No pipeline is declared. Add a folder to include/pipelines; README.md says how.")];
  return [h("h1", {}, "Pipelines"), h("div", { class: "cards" }, body.pipelines.map(card))];
}

function card(pipeline) {
  return h("article", { class: "card", key: pipeline.name, "aria-label": pipeline.name },
    h("h2", {}, pipeline.name),
    h("p", { class: "answer" }, pipeline.answer),
    pipeline.live && live(pipeline),
    pipeline.nights.length > 0 && nights(pipeline.nights),
    pipeline.active && active(pipeline.active),
    pipeline.planning.map((one) => h("p", { class: "quiet", key: `planning ${one.id}` }, `rewind ${one.id}: ${one.told}`)),
    pipeline.others.length > 0 && table("Beside it", ["job", "state", "driver", "lag"], pipeline.others.map((job) => [job.job_id, link("generation", job.job_id), badge(job.state), driving(job.driver), behind(job.lag)])),
    pipeline.garbage.map((g) => h("p", { class: "quiet", key: `garbage ${g.job_id}` }, `garbage of ${g.job_id}: ${g.things} things, ${g.waits}`)),
    h("p", { class: "links" }, pipeline.live && airflow(`dags/rewind_${pipeline.name}`, "Rewind it"), !pipeline.live && !pipeline.problem && airflow(`dags/deploy_${pipeline.name}`, "Deploy it"), pipeline.last && h("span", {}, "last rewind ", link("rewind", pipeline.last.id), " ", badge(pipeline.last.state))),
  );
}

function live({ live: job, epoch, mirror, source_topic: topic }) {
  return facts(
    ["Live", link("generation", job.job_id), " ", badge(job.state)],
    ["Epoch", String(epoch)],
    ["Driver", badge(job.driver.state)],
    ["Lag", behind(job.lag)],
    ["Rate", rate(job.rate)],
    ["Last batch", ago(job.last_batch_at)],
    job.watermark && ["Watermark", instant(job.watermark.at)],
    ["Mirror", mirror ? ["driver ", badge(mirror.driver.state), ` ${behind(mirror.lag)}, last commit ${ago(mirror.committed_at)}`, ...[mirror.driver.paused, mirror.note].filter(Boolean).map((text) => `; ${text}`)] : `none of ${topic}`],
    job.note && ["Note", job.note],
  );
}

const MARKS = { consistent: "✓", drifted: "≠", error: "!", nothing: "0", running: "…", not_replayed: "?" };

/** A strip of days: each with its day of the month and a mark; what it means is read out and stands in its title. */
function nights(found) {
  return h("div", { key: "nights" }, h("p", { class: "quiet" }, "Nightly replays"),
    h("ul", { class: "nights", "aria-label": "Nightly replays, oldest first" }, found.map((night) => {
      const told = `${night.label}: ${night.state.replace("_", " ")}, ${night.sample}${night.reason ? `; ${night.reason}` : ""}`;
      const mark = [h("span", { class: `badge ${TONES[night.state] ?? "quiet"}`, "aria-hidden": "true", title: told }, `${night.label.slice(8)} ${MARKS[night.state]}`), h("span", { class: "unseen" }, told)];
      return h("li", { key: night.replay_id }, night.report ? tab(report(night.replay_id, night.report), mark) : mark);
    })));
}

function active(rewind) {
  const done = rewind.steps.filter((step) => step.state === "done").length;
  return h("div", { class: "active", key: "active" },
    h("p", {}, "Rewind ", link("rewind", rewind.id), ` to ${rewind.job_id}: ${rewind.step} (${done} of ${rewind.steps.length} steps done)`),
    rewind.backfill && rewind.step === "backfill" && h("p", {}, "Backfill ", bar(Number(rewind.backfill[0]), Number(rewind.backfill[1]), "backfill"), rewind.seconds_left !== null && `, about ${span(rewind.seconds_left)} left`),
    rewind.waits && h("p", { class: "waits" }, `Waits: ${rewind.waits}`),
  );
}
