// What pages need beyond HTML: copying commands, ages that grow, choosing rows, and the end of a session.
"use strict";

(() => {
  const announce = (text) => {
    document.getElementById("announcements").textContent = text;
  };

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      getSelection().selectAllChildren(button.previousElementSibling);
      return;
    }
    button.textContent = button.dataset.copied;
    announce(button.dataset.copied);
    setTimeout(() => { button.textContent = before; }, 1500);
  });

  // `/` goes to the filter, as in other programs with lists.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const filter = document.querySelector("[data-filter]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
    filter.select();
  });

  // A filter with few choices needs no button.
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  });

  // Rows with a checkbox: one above them for all, and how many are chosen.
  const count = (table) => {
    const boxes = [...table.querySelectorAll("[data-choose]")];
    const chosen = boxes.filter((box) => box.checked).length;
    for (const box of boxes) box.closest("tr").classList.toggle("chosen", box.checked);
    const all = table.querySelector("[data-choose-all]");
    if (all) {
      all.checked = boxes.length > 0 && chosen === boxes.length;
      all.indeterminate = chosen > 0 && chosen < boxes.length;
    }
    for (const shown of document.querySelectorAll("[data-chosen]")) shown.textContent = chosen;
    for (const button of document.querySelectorAll("[data-needs-choice]")) {
      if (!button.hasAttribute("data-not-allowed")) button.disabled = chosen === 0;
    }
  };
  const countAll = () => document.querySelectorAll("table[data-choices]").forEach(count);
  document.addEventListener("change", (event) => {
    const table = event.target.closest("table");
    if (!table || !event.target.matches("[data-choose], [data-choose-all]")) return;
    if (event.target.matches("[data-choose-all]")) {
      for (const box of table.querySelectorAll("[data-choose]")) box.checked = event.target.checked;
    }
    count(table);
  });

  // Ages grow while the page is open. The server says when each moment was, and how spans of time are written.
  const spans = [[86400, "spanD"], [3600, "spanH"], [60, "spanM"], [1, "spanS"]];
  const grow = () => {
    for (const time of document.querySelectorAll("time[data-age]")) {
      const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000));
      const [size, unit] = spans.find(([least]) => seconds >= least) ?? spans[3];
      const text = document.documentElement.dataset[unit].replace("0", Math.floor(seconds / size));
      if (time.textContent !== text) time.textContent = text;
    }
  };
  setInterval(grow, 5000);

  document.addEventListener("htmx:after:swap", () => { countAll(); grow(); });

  // A stream that is refused because the session is over would be tried for ever.
  document.addEventListener("htmx:sse:error", (event) => {
    if (event.detail.status === 401) location.reload();
  });
  document.addEventListener("ended", () => location.reload());

  // A stream that has ended is tried again by htmx, one whose first request failed is not.
  let patience = 5000;
  const connect = () => {
    const live = document.getElementById("live");
    if (live && !live._htmx?.sse && !document.hidden) {
      htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live });
      patience = Math.min(2 * patience, 60000);
    }
    setTimeout(connect, patience);
  };
  setTimeout(connect, patience);

  const start = () => { countAll(); grow(); };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
