// Each action asks once and says what will happen.
import { h, patch } from "./dom.js";
import { post } from "./api.js";

/** Buttons for what may be done; `done(sentence)` afterwards. */
export function buttons(rewindId, offers, done) {
  if (!offers.length) return h("p", { class: "quiet", key: "offers" }, "Nothing is to be decided here now.");
  return h("p", { class: "offers", key: "offers" }, offers.map((offer) => h("button", {
    type: "button", key: offer.name, class: ["abort", "reject", "roll_back"].includes(offer.name) ? "danger" : "",
    disabled: !offer.allowed, title: offer.allowed ? null : "You may look, but not run this DAG",
    on: { click: () => ask(rewindId, offer, done) },
  }, offer.label)));
}

function ask(rewindId, offer, done) {
  const dialog = document.getElementById("question");
  const close = () => dialog.close();
  const send = async (event) => {
    event.preventDefault();
    // What was left empty is null: an empty text is refused.
    const typed = dialog.querySelector("textarea, input")?.value.trim() || null;
    const given = offer.asks === "rate" ? { rate: typed && Number(typed) } : offer.asks ? { reason: typed } : {};
    show(true, "");
    try {
      const answer = await post(`api/rewinds/${encodeURIComponent(rewindId)}/actions/${offer.name}`, given);
      close();
      done(`${offer.label}: ${answer.done}`);
    } catch (problem) {
      show(false, problem.message);
    }
  };
  const show = (sending, problem) => patch(dialog, h("form", { method: "dialog", on: { submit: send } },
    h("h2", { id: "asked" }, `${offer.label} ${rewindId}?`),
    h("p", {}, offer.consequence),
    offer.asks.startsWith("reason") && h("label", {}, offer.asks === "reason" ? "Reason, for the history" : "Reason (needed)", h("textarea", { rows: "3", maxlength: "2000", required: offer.asks !== "reason" })),
    offer.asks === "rate" && h("label", {}, "Records a second; empty lifts the limit", h("input", { type: "number", min: "1", step: "1" })),
    problem && h("p", { class: "bad", role: "alert" }, problem),
    h("p", { class: "offers" }, h("button", { type: "submit", disabled: sending, class: "main" }, offer.label), h("button", { type: "button", on: { click: close } }, "Cancel")),
  ));
  patch(dialog);
  show(false, "");
  dialog.showModal();
}
