"use strict";
// A page works without this script; with it, the budget is followed while it is drawn, and filters at once.

const form = document.getElementById("request");
const filters = document.querySelector("form.search .facets");

if (filters) {
  filters.addEventListener("change", () => filters.closest("form").requestSubmit());
}

if (form) {
  const [need, percent, budget] = ["need", "percent", "budget"].map((id) => document.getElementById(id));
  const tokens = Number(percent.dataset.tokens);
  let waiting = 0;
  let asked = null;

  const say = () => {
    budget.textContent = percent.value < 100
      ? `${percent.value}%: at most ${Math.floor((percent.value / 100) * tokens).toLocaleString("en")} tokens`
      : "as much as it needs";
  };

  // The server makes the page anew, and the parts that a request changes are taken from it.
  const mark = async () => {
    if (!need.value.trim()) return;
    if (asked) asked.abort();
    asked = new AbortController();
    const target = `${form.action}?${new URLSearchParams(new FormData(form))}`;
    try {
      const answer = await fetch(target, { signal: asked.signal, headers: { accept: "text/html" } });
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!answer.ok || !made.getElementById("body")) {
        const why = made.querySelector("main p")?.textContent ?? `error ${answer.status}`;
        document.getElementById("answer").textContent = `The server refused: ${why}`;
        return;
      }
      for (const id of ["answer", "body"]) {
        const open = document.querySelector(`#${id} details`)?.open;
        const part = made.getElementById(id);
        if (open) part.querySelector("details")?.setAttribute("open", "");
        document.getElementById(id).replaceWith(part);
      }
      history.replaceState(null, "", target);
    } catch (error) {
      if (error.name !== "AbortError") document.getElementById("answer").textContent = "The server does not answer.";
    }
  };

  const soon = () => {
    say();
    clearTimeout(waiting);
    waiting = setTimeout(mark, 120);
  };

  percent.addEventListener("input", soon);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    mark();
  });
}
