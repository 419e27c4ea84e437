// All rewinds and nightly replays, searchable; two of a kind can be compared.
import { h } from "./dom.js";
import { badge, instant, link, report, tab, table, whole } from "./format.js";

export const path = () => "api/history";
export const title = () => "History";

let wanted = "";
let chosen = [];

export function page(body, _id, _done, again) {
  const nights = body.nights.filter((night) => nightWords(night).includes(wanted));
  const found = body.rewinds.filter((line) => words(line).includes(wanted));
  const search = (event) => {
    wanted = event.target.value.trim().toLowerCase();
    again();
  };
  const choose = (id) => (event) => {
    // The two of a kind that were chosen last.
    chosen = [...chosen.filter((one) => one !== id && isNight(one) === isNight(id)), ...(event.target.checked ? [id] : [])].slice(-2);
    for (const box of document.querySelectorAll("main input[type=checkbox]")) box.checked = chosen.includes(box.name);
    again();
  };
  return [
    h("h1", {}, "History"),
    h("label", { class: "search", key: "search" }, "Search", h("input", { type: "search", placeholder: "pipeline, job, state, reason, person", on: { input: search } })),
    h("p", { role: "status", key: "found" }, `${found.length} of ${body.rewinds.length} rewinds${body.rewinds.length === body.newest ? ", the newest ones" : ""}; ${nights.length} of ${body.nights.length} nightly replays`),
    h("p", { key: "compare" }, chosen.length === 2 ? link("compare", chosen.join("~"), `Compare ${chosen[0]} and ${chosen[1]}`) : h("span", { class: "quiet" }, "Choose two rewinds, or two nightly replays, to compare them.")),
    table("Rewinds", ["rewind", "compare", "pipeline", "makes", "state", "verdict", "answer", "evidence", "since", "reason"], found.map((line) => [line.rewind.id, link("rewind", line.rewind.id), box(line.rewind.id, choose), line.rewind.pipeline, link("generation", line.rewind.job_id), badge(line.rewind.state), verdict(line), line.answer, line.evidence ? link("rewind", line.rewind.id, files(line.evidence)) : "none", instant(line.rewind.created_at), line.rewind.reason])),
    table("Nightly replays", ["night", "compare", "pipeline", "state", "replayed", "offsets", "differ in", "evidence", "why"], nights.map((night) => [night.replay_id, night.label, box(night.replay_id, choose), night.pipeline, badge(night.state), night.sample, whole(night.offsets), differing(night), night.report ? tab(report(night.replay_id, night.report), night.replay_id) : "none", night.reason])),
    table("Who did what", ["when", "who", "did", "pipeline", "to", "said"], body.acts.filter((act) => actWords(act).includes(wanted)).map((act) => [act.number, instant(act.at), act.person, act.action, act.pipeline, act.subject, said(act)])),
  ];
}

const box = (id, choose) => h("input", { type: "checkbox", name: id, "aria-label": `Compare ${id}`, on: { change: choose(id) } });
const files = (count) => `${whole(count)} file${count === 1 ? "" : "s"}`;
const verdict = (line) => line.verdict && [badge(line.verdict), ` ${line.told || Object.entries(line.counts).map(([name, rows]) => `${name} ${whole(rows)}`).join(", ")}`];
const isNight = (id) => /-n\d+$/.test(id);
const differing = (night) => Object.entries(night.differing).map(([name, rows]) => `${name} ${whole(rows)}`).join(", ");
const nightWords = (night) => [night.replay_id, night.label, night.pipeline, night.state.replace("_", " "), night.sample, night.reason, Object.keys(night.differing)].join(" ").toLowerCase();
const said = (act) => Object.entries(act.said).filter(([, value]) => value !== null && value !== "").map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
const actWords = (act) => [act.person, act.action, act.pipeline, act.subject, said(act)].join(" ").toLowerCase();
const words = (line) => [line.rewind.id, line.rewind.pipeline, line.rewind.job_id, line.rewind.state, line.rewind.reason, line.verdict, line.answer].join(" ").toLowerCase();
