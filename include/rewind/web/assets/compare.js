// Two rewinds, or two nights, side by side: what differs first, and all of it on request.
import { h } from "./dom.js";
import { openable } from "./files.js";
import { badge, facts, instant, link, report, section, table, vector, whole } from "./format.js";

export const path = (id) => `api/compare/${id.split("~").map(encodeURIComponent).join("/")}`;
export const title = (id) => `Compare ${id.replace("~", " and ")}`;

export function page(body) {
  const heads = body.sides.map((side) => side.id);
  const differs = body.lines.filter((line) => JSON.stringify(line.values[0]) !== JSON.stringify(line.values[1]));
  return [
    h("h1", {}, "Compare ", h("code", {}, heads[0]), " and ", h("code", {}, heads[1])),
    facts(...body.sides.map((side) => [side.pipeline, body.page ? link(body.page, side.id) : side.id])),
    section("What differs", lines("What differs", heads, differs)),
    section("All", h("details", { key: "all" }, h("summary", {}, `${body.lines.length} lines, the same ones too`), lines("All that is compared", heads, body.lines))),
    section("Evidence", heads.map((id) => h("div", { key: id }, h("h3", {}, id), openable(`Evidence of ${id}`, body.evidence[id], (name) => report(id, name))))),
  ];
}

const lines = (caption, heads, found) => table(caption, ["what", ...heads], found.map((line) => [`${line.section} ${line.name}`, `${line.section}: ${line.name.replaceAll("_", " ")}`, ...line.values.map(shown)]), "nothing");

function shown(value) {
  if (value === null || value === undefined || value === "") return "none";
  if (["pass", "fail", "error", "consistent", "drifted", "nothing", "not_replayed"].includes(value)) return badge(value);
  if (typeof value === "number" || /^-?\d+$/.test(value)) return whole(value);
  if (typeof value === "string") return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(value) ? instant(value) : value;
  return isVector(value) ? vector(value) : JSON.stringify(value);
}

const isVector = (value) => !Array.isArray(value) && typeof value === "object" && Object.keys(value).length > 0 && Object.keys(value).every((key) => /^\d+$/.test(key));
