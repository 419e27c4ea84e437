// Requests to the page's own routes, and polling that costs nothing while nothing changes or nobody looks.

const INTERVAL = 5000;
let offset = 0;

/** The server's clock, in milliseconds: ages are counted by it. */
export const serverNow = () => Date.now() + offset;

export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Return the parsed answer, or null when it is still the one with the tag. */
export async function get(path, tag) {
  const answer = await fetch(path, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
  const date = answer.headers.get("date");
  if (date) offset = Date.parse(date) - Date.now();
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Problem(answer.status, await told(answer));
  return { body: await answer.json(), tag: answer.headers.get("etag") };
}

export async function text(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Problem(answer.status, await told(answer));
  return answer.text();
}

export async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  if (!answer.ok) throw new Problem(answer.status, await told(answer));
  return answer.json();
}

async function told(answer) {
  const said = await answer.text();
  try {
    const detail = JSON.parse(said).detail;
    return typeof detail === "string" ? detail : said;
  } catch {
    return said || `the server answered ${answer.status}`;
  }
}

/** Ask again and again; `seen(body)` on each change, `failed(problem)` when there is no answer. Returns how to stop, and how to ask now. */
export function poll(path, seen, failed) {
  let tag = null;
  let timer = 0;
  let stopped = false;
  const ask = async () => {
    clearTimeout(timer);
    try {
      const answer = await get(path, tag);
      if (stopped) return;
      if (answer) tag = answer.tag;
      seen(answer?.body ?? null);
    } catch (problem) {
      if (stopped) return;
      tag = null;
      failed(problem);
    }
    clearTimeout(timer);
    if (!document.hidden) timer = setTimeout(ask, INTERVAL);
  };
  const shown = () => (document.hidden ? clearTimeout(timer) : ask());
  document.addEventListener("visibilitychange", shown);
  ask();
  const stop = () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", shown);
  };
  return { stop, ask };
}
