// Everything here is a convenience: without it, every page and every form works.
(() => {
  "use strict";

  const byID = (id) => document.getElementById(id);
  const live = byID("live");
  const keysAreOn = () => { try { return localStorage.getItem("keys") !== "off"; } catch { return true; } };

  // ---- Keys -----------------------------------------------------------------------------------------------------------

  const toggle = byID("keys-on");
  if (toggle) {
    toggle.checked = keysAreOn();
    toggle.addEventListener("change", () => {
      try { localStorage.setItem("keys", toggle.checked ? "on" : "off"); } catch { /* It stays as it is. */ }
    });
  }

  const rows = () => [...document.querySelectorAll("[data-row]")];
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const here = all.indexOf(document.activeElement);
    const next = here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, here + by));
    all[next].focus();
  };
  const goTo = (key) => {
    const target = document.querySelector(`[data-key="${key}"]`);
    if (!target) return;
    target.focus();
    target.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    j: () => step(1), k: () => step(-1),
    c: () => document.querySelector('[data-key="c"]')?.click(),
    a: () => goTo("a"), r: () => goTo("r"),
    "/": () => (byID("q") ?? byID("find"))?.focus(),
    "?": () => byID("keys")?.showModal(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || !keysAreOn()) return;
    if (event.target.closest?.("input, textarea, select, dialog, [contenteditable]")) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  for (const opener of document.querySelectorAll("[data-open]")) {
    opener.addEventListener("click", () => byID(opener.dataset.open)?.showModal());
  }

  // ---- Copying --------------------------------------------------------------------------------------------------------

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = byID(button.dataset.copy);
      try { await navigator.clipboard.writeText(source.value); } catch { source.select(); document.execCommand("copy"); }
      live.textContent = "Copied.";
    });
  }

  // A form is sent once.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", (event) => {
    // Out of the browser's memory: an operator who goes back may be signed out by now.
    if (event.persisted && document.querySelector(".who")) location.reload();
    for (const form of document.forms) delete form.dataset.sent;
  });

  // ---- Live -----------------------------------------------------------------------------------------------------------

  const parts = () => [...document.querySelectorAll("[data-live]")];
  if (!parts().length || document.body.querySelector("#password")) return;

  // No operator stays signed in because a page was left open.
  let touched = Date.now();
  for (const kind of ["keydown", "pointerdown", "wheel"]) {
    document.addEventListener(kind, () => { touched = Date.now(); }, { passive: true, capture: true });
  }

  let submitted = 0;
  window.addEventListener("submit", (event) => { if (!event.defaultPrevented) submitted = Date.now(); });

  const isInUse = (part) =>
    part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button") ||
    [...part.querySelectorAll("input, textarea, select")].some((field) =>
      field.type === "checkbox" ? field.checked !== field.defaultChecked
        : field.matches("select") ? [...field.options].some((option) => option.selected !== option.defaultSelected) && field.selectedIndex > 0
          : field.type !== "hidden" && field.value !== field.defaultValue);

  const refresh = async () => {
    const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
    // A form waits for its answer: loading the page again would cancel it.
    if (Date.now() - submitted < 10 * 1000) { setTimeout(soon, 10 * 1000); return; }
    if (!answer.ok || answer.redirected) { live.textContent = "Load the page again: you may be signed out."; return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    let changed = false;
    // What is decided on was read: it is never exchanged under the operator's hand.
    const panel = byID("panel");
    const now = fresh.getElementById("panel");
    if (panel && now && panel.dataset.guard !== now.dataset.guard) {
      const used = [...panel.querySelectorAll("textarea, select")].some((field) => field.value);
      for (const button of panel.querySelectorAll("button")) button.disabled = true;
      byID("stale").hidden = false;
      live.textContent = "The case has changed.";
      if (!used && !panel.contains(document.activeElement) && !document.querySelector("dialog[open]")) {
        location.reload();
        return;
      }
    }
    for (const part of parts()) {
      const next = fresh.getElementById(part.id);
      if (!next || next.innerHTML === part.innerHTML) continue;
      if (isInUse(part)) { live.textContent = "The page has changed; load it again before you decide."; continue; }
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      part.replaceChildren(...next.childNodes);
      part.classList.remove("fresh");
      void part.offsetWidth;
      part.classList.add("fresh");
      if (focused) [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
      changed = true;
    }
    if (changed) live.textContent = "The page shows the latest state.";
  };

  let waiting;
  let busy = false;
  let stale = false;
  const soon = () => {
    if (document.hidden || Date.now() - touched > 10 * 60 * 1000) { stale = true; return; }
    if (waiting) return;
    waiting = setTimeout(async () => {
      waiting = undefined;
      if (busy) { soon(); return; }
      stale = false;
      busy = true;
      try { await refresh(); } catch { live.textContent = "The page could not be brought up to date."; }
      busy = false;
    }, 300 + Math.random() * 700);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && stale) soon(); });
  document.addEventListener("pointerdown", () => { if (stale) soon(); });

  const source = new EventSource("/console/live");
  // The first word comes with the connection: what has changed while there was none is not missed.
  source.addEventListener("changed", soon);
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) live.textContent = "This page is not kept up to date any more; load it again.";
  });
  window.addEventListener("pagehide", () => source.close());
  // What goes on by itself, without a word to anybody.
  const every = Math.min(...parts().map((part) => Number(part.dataset.live) || Infinity));
  if (Number.isFinite(every)) setInterval(soon, every * 1000);
})();
