// Evidence and logs: a list of names, and the one that is opened as text.
import { h } from "./dom.js";
import { text } from "./api.js";
import { tab, whole } from "./format.js";

/** A list of files that open in place; `address(name)` is where one lies. */
export function openable(label, found, address) {
  if (!found.length) return h("p", { class: "quiet", key: label }, `${label}: none`);
  return h("ul", { class: "files", key: label, "aria-label": label }, found.map((file) => h("li", { key: file.name }, file.name.endsWith(".html")
    ? tab(address(file.name), `${file.name} (a page of its own)`)
    : h("details", { on: { toggle: (event) => open(event.currentTarget, address(file.name)) } },
      h("summary", {}, `${file.name} (${whole(file.bytes)} bytes)`),
      h("pre", { tabindex: "0", "aria-label": file.name }, TEXTS.get(address(file.name)) ?? "")))));
}

const TEXTS = new Map();

async function open(details, address) {
  if (!details.open) return;
  try {
    TEXTS.set(address, await text(address));
  } catch (problem) {
    TEXTS.set(address, problem.message);
  }
  // The next update describes it the same, and so leaves it alone.
  details.querySelector("pre").textContent = TEXTS.get(address);
}
