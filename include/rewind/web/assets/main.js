// Which page is shown, and what keeps it up to date.
import { get, poll, serverNow } from "./api.js";
import { h, patch } from "./dom.js";
import * as compare from "./compare.js";
import * as generation from "./generation.js";
import * as history from "./history.js";
import * as overview from "./overview.js";
import * as rewind from "./rewind.js";

const PAGES = { overview, rewind, generation, history, compare };
const place = (id) => document.getElementById(id);
const content = place("content");
let current = null;

function asked() {
  const [name, id] = location.hash.replace(/^#/, "").split("/");
  return PAGES[name] ? { name, id: decodeURIComponent(id ?? "") } : { name: "overview", id: "" };
}

function show(focus) {
  current?.stop();
  const { name, id } = asked();
  const page = PAGES[name];
  let body = null;
  document.title = `${page.title(id)} - Rewind`;
  patch(place("pages"), ["overview", "history"].map((one) => h("li", { key: one }, h("a", { href: `#${one}`, "aria-current": one === name ? "page" : null }, PAGES[one].title()))));
  const draw = () => {
    place("loading")?.remove();
    patch(content, page.page(body, id, acted, draw));
  };
  const seen = (found) => {
    const news = body !== null && found !== null && changed(body, found);
    body = found ?? body;
    tell(body.problems?.join("; ") ?? "");
    patch(place("fresh"), h("span", {}, "up to date at "), h("time", {}, `${new Date(serverNow()).toISOString().slice(11, 19)}Z`));
    draw();
    if (news) place("news").textContent = news;
    if (focus) content.focus();
    focus = false;
  };
  const failed = (problem) => {
    tell(problem.message);
    place("loading")?.remove();
    if (body === null) patch(content, h("p", { class: "quiet" }, problem.status === 404 ? "There is nothing of that name." : "Nothing can be shown now; this page tries again by itself."));
    else patch(place("fresh"), h("span", { class: "bad" }, "not up to date"));
  };
  const acted = (sentence) => {
    place("news").textContent = sentence;
    current.ask();
  };
  current = poll(page.path(id), seen, failed);
}

/** What a listener should hear: the state of a rewind, or the answers of the overview, but not each number. */
function changed(old, found) {
  if (found.rewind && old.rewind && (found.rewind.waits !== old.rewind.waits || found.rewind.state !== old.rewind.state)) return `${found.rewind.id} is ${found.rewind.state}. ${found.rewind.waits}`;
  const before = new Map((old.pipelines ?? []).map((pipeline) => [pipeline.name, pipeline.answer]));
  return (found.pipelines ?? []).filter((pipeline) => before.get(pipeline.name) !== pipeline.answer).map((pipeline) => `${pipeline.name}: ${pipeline.answer}`).join(". ");
}

function tell(problem) {
  place("problem").hidden = !problem;
  if (place("problem").textContent !== problem) place("problem").textContent = problem;
}

/** As the tab of a DAG run the page is told the run, and shows its rewind. */
async function ofRun() {
  const query = new URLSearchParams(location.search);
  const [dag, run] = [query.get("dag_id"), query.get("run_id")];
  if (!dag?.startsWith("rewind_") || !run || location.hash) return;
  const answer = await get(`api/run?${new URLSearchParams({ dag_id: dag, run_id: run })}`);
  // In place, so that "back" leaves the page.
  globalThis.history.replaceState(null, "", `#rewind/${answer.body.rewind_id}`);
}

document.querySelector(".skip").onclick = (event) => {
  event.preventDefault();
  content.focus();
};
addEventListener("hashchange", () => show(true));
await ofRun().catch((problem) => tell(problem.message));
show(false);
