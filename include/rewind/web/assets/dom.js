// Elements are described, then put into the document in place: what did not change is not touched, so that neither
// focus nor selection nor scroll position is lost. Text is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "path", "line", "circle", "text", "title", "polyline", "rect"]);

/** Describe an element: h("a", { href: "#", key: 1 }, "text", child, null). */
export function h(tag, attributes = {}, ...children) {
  const { key, on = {}, ...rest } = attributes;
  return { tag, key, on, attributes: rest, children: children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false && c !== "") };
}

/** Make the children of an element what the descriptions say. */
export function patch(parent, ...descriptions) {
  const wanted = descriptions.flat(Infinity).filter((d) => d !== null && d !== undefined && d !== false && d !== "");
  const keyed = new Map([...parent.childNodes].filter((n) => n.rewindKey !== undefined).map((n) => [n.rewindKey, n]));
  let place = parent.firstChild;
  for (const description of wanted) {
    const node = matching(place, keyed, description) ?? made(description, parent);
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    fill(node, description);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function matching(place, keyed, description) {
  if (typeof description !== "object") return place?.nodeType === Node.TEXT_NODE ? place : null;
  if (description.key !== undefined) return keyed.get(description.key) ?? null;
  const same = place?.nodeType === Node.ELEMENT_NODE && place.localName === description.tag && place.rewindKey === undefined;
  return same ? place : null;
}

function made(description, parent) {
  if (typeof description !== "object") return document.createTextNode("");
  const drawn = SVG_TAGS.has(description.tag) && (description.tag === "svg" || parent.namespaceURI === SVG);
  const node = drawn ? document.createElementNS(SVG, description.tag) : document.createElement(description.tag);
  node.rewindKey = description.key;
  return node;
}

function fill(node, description) {
  if (typeof description !== "object") {
    if (node.data !== String(description)) node.data = String(description);
    return;
  }
  for (const [name, value] of Object.entries(description.attributes)) setAttribute(node, name, value);
  for (const { name } of [...node.attributes]) {
    // What the reader did to an element, such as opening it, is theirs.
    if (!(name in description.attributes) && name !== "open") node.removeAttribute(name);
  }
  for (const [event, listener] of Object.entries(description.on)) node[`on${event}`] = listener;
  patch(node, description.children);
}

function setAttribute(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}
