// One generation: what is frozen, what it owns, and what it did.
import { h } from "./dom.js";
import { rateChart } from "./chart.js";
import { openable } from "./files.js";
import { badge, behind, driving, facts, instant, link, rate, section, table, vector, whole } from "./format.js";

export const path = (id) => `api/generations/${encodeURIComponent(id)}`;
export const title = (id) => `Generation ${id}`;

export function page(body, id) {
  const job = body.job;
  return [
    h("h1", {}, "Generation ", h("code", {}, id), " ", badge(job.state)),
    facts(
      ["Pipeline", body.pipeline], ["Live now", body.live ? link("generation", body.live) : "nothing"],
      ["Driver", driving(job.driver)], ["Lag", behind(job.lag)], ["Rate", rate(job.rate)],
      ["Reads", job.source_topic], ["Writes", job.output_topic], ["Dead letters", job.dead_letter_topic],
      ["Start", vector(job.start)], ["Handoff", vector(job.handoff)], ["Position", vector(job.position)],
      body.state_bytes !== null && ["State", `${whole(body.state_bytes)} bytes on disk`],
      job.watermark && ["Watermark", instant(job.watermark.at)], ["Bundle", h("code", {}, job.bundle)],
      job.grace_until && ["Kept until", instant(job.grace_until)], job.driver.cause && ["Last failure", failure(job.driver)], job.note && ["Note", job.note],
    ),
    body.live !== id && section("Differs from live", table("What differs", ["what", "live", "this"], body.differences.map((d) => [d.what, h("code", {}, d.what), d.live || "absent", d.candidate || "absent"]), "nothing")),
    section("Manifest", table("What it owns", ["name", "kind", "id", "state"], body.manifest.map((e) => [`${e.kind} ${e.name}`, e.name, e.kind, e.resource_id ?? "", badge(e.state)]))),
    section("Throughput", rateChart(body.throughput)),
    section("Batches", table("Newest batches", ["batch", "records", "up to", "committed"], body.batches.map((b) => [b.batch, whole(b.batch), whole(b.rows), vector(b.end), instant(b.at)]))),
    section("Frozen", h("pre", { tabindex: "0", "aria-label": "Frozen configuration" }, JSON.stringify(body.frozen, null, 1)), code(Object.entries(body.files))),
    section("History", table("Its rewinds", ["rewind", "state", "since", "reason"], body.rewinds.map((r) => [r.id, link("rewind", r.id), badge(r.state), instant(r.created_at), r.reason])),
      table("Deleted", ["name", "kind", "result", "when"], body.deletions.map((d, n) => [n, d.name, d.kind, badge(d.result), instant(d.at)]))),
    section("Logs", openable(`Logs of ${id}`, body.logs[id], (name) => `api/streams/${encodeURIComponent(id)}/logs/${encodeURIComponent(name)}`)),
  ];
}

/** The cause, and folded what it was found in. */
function failure({ cause, last_failure: kept }) {
  const rest = kept.slice(kept.indexOf("\n") + 1);
  return [h("span", {}, cause), kept.includes("\n") && h("details", { key: "failure" }, h("summary", {}, "Output"), h("pre", { tabindex: "0", "aria-label": "Output of the driver that failed" }, rest))];
}

function code(files) {
  const listed = table("Code", ["file", "sha256"], files.map(([name, hash]) => [name, name, h("code", {}, hash.slice(0, 12))]));
  return h("details", { key: "code" }, h("summary", {}, `Code: ${files.length} files`), listed);
}
