// Numbers, instants and small pieces that all pages share.
import { h } from "./dom.js";
import { serverNow } from "./api.js";

export const UNKNOWN = "unknown";

/** A whole number with its thousands apart, exact however large; it may come as text. */
export function whole(number) {
  if (number === null || number === undefined) return UNKNOWN;
  return /^-?\d+$/.test(String(number)) ? BigInt(number).toLocaleString("en") : Number(number).toLocaleString("en", { maximumFractionDigits: 1 });
}

export const rate = (number) => (number === null || number === undefined ? UNKNOWN : `${whole(number)} records/s`);
export const behind = (lag) => (lag === null || lag === undefined ? UNKNOWN : `${whole(lag)} behind`);
export const vector = (position) => (position && Object.keys(position).length ? Object.entries(position).map(([p, at]) => `${p}: ${whole(at)}`).join(", ") : "none");

export function span(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return s < 86400 ? `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min` : `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** An instant in UTC, with how long ago it was in the title. */
export function instant(text) {
  if (!text) return "";
  const shown = text.replace("T", " ").replace(/\.\d+Z$/, "Z");
  return h("time", { datetime: text }, shown);
}

export const ago = (text) => (text ? `${span((serverNow() - Date.parse(text)) / 1000)} ago` : UNKNOWN);

export const TONES = {
  consistent: "good", drifted: "bad", live: "good", alive: "good", done: "good", pass: "good", finished: "good", approve: "good", deleted: "quiet",
  running: "busy", candidate: "busy", active: "busy", starting: "busy", backfilling: "busy", merging: "busy",
  waiting: "warn", standby: "warn", draining: "warn", elsewhere: "warn", rolled_back: "warn",
  failed: "bad", fail: "bad", error: "bad", dead: "bad", orphan: "bad", quarantined: "bad", refused: "bad", reject: "bad", aborted: "warn",
};

/** A state as a word, never by colour alone. */
export const badge = (word) => h("span", { class: `badge ${TONES[word] ?? "quiet"}` }, word || "none");

/** What a driver does, and whose it is when a step has it. */
export const driving = (driver) => [badge(driver.state), driver.step && ` step ${driver.step}`];

/** The address of a report in an evidence folder. */
export const report = (id, name) => `api/rewinds/${encodeURIComponent(id)}/evidence/${encodeURIComponent(name)}`;

export const facts = (...pairs) => h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))));

/** A table with a caption; rows are [key, ...cells]; the first cell names the row. */
export function table(caption, heads, rows, empty = "none") {
  if (!rows.length) return h("p", { class: "quiet", key: caption }, `${caption}: ${empty}`);
  const head = h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name))));
  const body = h("tbody", {}, rows.map(([key, first, ...cells]) => h("tr", { key }, h("th", { scope: "row" }, first), cells.map((cell) => h("td", {}, cell)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption, key: caption }, h("table", {}, h("caption", {}, caption), head, body));
}

export function bar(done, of, label) {
  const share = of > 0 ? Math.min(1, done / of) : 0;
  return h("span", { class: "bar" }, h("progress", { max: "1", value: share.toFixed(4), "aria-label": label }), h("span", {}, ` ${Math.floor(share * 100)} %`));
}

export const link = (page, id, label = id) => h("a", { href: `#${page}/${encodeURIComponent(id)}` }, label);

/** A link into Airflow. */
export const airflow = (path, label) => outward(new URL(`../${path}`, document.baseURI).href, label, {});

/** A link to a page of its own, in a tab of its own. */
export const tab = (path, label) => outward(new URL(path, document.baseURI).href, label, { target: "_blank", rel: "noopener" });

/** An embedded page may neither move the window around it nor open another, so that window is asked to do so itself. */
function outward(href, label, how) {
  const follow = (event) => {
    if (parent === window) return;
    const asked = event.metaKey || event.ctrlKey || event.shiftKey ? { target: "_blank", rel: "noopener" } : how;
    event.preventDefault();
    const outside = Object.assign(parent.document.createElement("a"), { href, ...asked });
    parent.document.body.append(outside);
    outside.click();
    outside.remove();
  };
  return h("a", { href, ...how, on: { click: follow } }, label);
}

export const section = (title, ...content) => h("section", { key: title, "aria-label": title }, h("h2", {}, title), content);
