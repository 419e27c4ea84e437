// All rewinds, searchable.
import { h } from "./dom.js";
import { badge, instant, link, table, whole } from "./format.js";

export const path = () => "api/history";
export const title = () => "History";

let wanted = "";

export function page(body, _id, _done, again) {
  const found = body.rewinds.filter((line) => words(line).includes(wanted));
  const search = (event) => {
    wanted = event.target.value.trim().toLowerCase();
    again();
  };
  return [
    h("h1", {}, "History"),
    h("label", { class: "search", key: "search" }, "Search", h("input", { type: "search", placeholder: "pipeline, job, state, reason, person", on: { input: search } })),
    h("p", { role: "status", key: "found" }, `${found.length} of ${body.rewinds.length} rewinds${body.rewinds.length === body.newest ? ", the newest ones" : ""}`),
    table("Rewinds", ["rewind", "pipeline", "makes", "state", "verdict", "answer", "since", "reason"], found.map((line) => [line.rewind.id, link("rewind", line.rewind.id), line.rewind.pipeline, link("generation", line.rewind.job_id), badge(line.rewind.state), verdict(line), line.answer, instant(line.rewind.created_at), line.rewind.reason])),
  ];
}

const verdict = (line) => line.verdict && [badge(line.verdict), ` ${Object.entries(line.counts).map(([name, rows]) => `${name} ${whole(rows)}`).join(", ")}`];
const words = (line) => [line.rewind.id, line.rewind.pipeline, line.rewind.job_id, line.rewind.state, line.rewind.reason, line.verdict, line.answer].join(" ").toLowerCase();
