// The candidate's lag against live over time, with the handoff and the gate drawn in.
import { h } from "./dom.js";
import { whole } from "./format.js";

const WIDTH = 640, HEIGHT = 200, LEFT = 84, RIGHT = 12, TOP = 18, BOTTOM = 24;

export function lagChart(race) {
  const points = race.points.map((point) => [Date.parse(point.at), Number(point.offsets)]);
  if (!points.length) return h("p", { class: "quiet", key: "lag" }, "The candidate has not yet recorded a batch.");
  const handoff = race.handoff_at ? Date.parse(race.handoff_at) : null;
  const times = [...points.map(([at]) => at), ...(handoff ? [handoff] : [])];
  const first = Math.min(...times), last = Math.max(...times, first + 1000);
  const most = Math.max(...points.map(([, lag]) => lag));
  const highest = Math.max(Number(race.gate), most, 1);
  const x = (at) => LEFT + ((at - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (lag) => HEIGHT - BOTTOM - (lag / highest) * (HEIGHT - TOP - BOTTOM);
  const newest = points[points.length - 1][1];
  const words = `Candidate's lag against live: ${whole(newest)} offsets now, ${whole(most)} at most; gate ${whole(race.gate)}.`;
  return h("figure", { key: "lag" },
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words },
      h("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }),
      h("line", { class: "gate", x1: LEFT, x2: WIDTH - RIGHT, y1: y(race.gate), y2: y(race.gate) }),
      h("text", { x: LEFT - 6, y: y(race.gate) + 4, "text-anchor": "end" }, `gate ${short(race.gate)}`),
      Math.abs(y(highest) - y(race.gate)) > 16 && h("text", { x: LEFT - 6, y: y(highest) + 4, "text-anchor": "end" }, short(highest)),
      h("text", { x: LEFT - 6, y: y(0) + 4, "text-anchor": "end" }, "0"),
      handoff && h("line", { class: "handoff", x1: x(handoff), x2: x(handoff), y1: TOP, y2: y(0) }),
      handoff && h("text", { x: x(handoff), y: TOP - 6, "text-anchor": x(handoff) > WIDTH / 2 ? "end" : "start" }, "handoff fixed"),
      h("polyline", { class: "lag", points: points.map(([at, lag]) => `${x(at).toFixed(1)},${y(lag).toFixed(1)}`).join(" ") }),
      h("circle", { class: "now", cx: x(points[points.length - 1][0]), cy: y(newest), r: 3 }),
      h("text", { x: LEFT, y: HEIGHT - 6 }, clock(first)),
      h("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, clock(last)),
    ),
    h("figcaption", {}, words),
  );
}

/** Records a second over time. */
export function rateChart(found) {
  const points = found.map((point) => [Date.parse(point.at), Number(point.rate)]);
  if (points.length < 2) return h("p", { class: "quiet", key: "rate" }, "Too few batches are recorded for a line.");
  const first = points[0][0], last = Math.max(points[points.length - 1][0], first + 1000);
  const highest = Math.max(...points.map(([, rate]) => rate), 1);
  const x = (at) => LEFT + ((at - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (rate) => HEIGHT - BOTTOM - (rate / highest) * (HEIGHT - TOP - BOTTOM);
  const newest = points[points.length - 1];
  const words = `Throughput: ${whole(newest[1])} records/s at last, ${whole(highest)} at most, from ${clock(first)} to ${clock(last)}.`;
  return h("figure", { key: "rate" },
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": words },
      h("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: y(0), y2: y(0) }),
      h("text", { x: LEFT - 6, y: y(highest) + 4, "text-anchor": "end" }, `${short(highest)}/s`),
      h("text", { x: LEFT - 6, y: y(0) + 4, "text-anchor": "end" }, "0"),
      h("polyline", { class: "lag", points: points.map(([at, rate]) => `${x(at).toFixed(1)},${y(rate).toFixed(1)}`).join(" ") }),
      h("circle", { class: "now", cx: x(newest[0]), cy: y(newest[1]), r: 3 }),
      h("text", { x: LEFT, y: HEIGHT - 6 }, clock(first)),
      h("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, clock(last)),
    ),
    h("figcaption", {}, words),
  );
}

const clock = (at) => `${new Date(at).toISOString().slice(11, 19)}Z`;
const short = (number) => Number(number).toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
