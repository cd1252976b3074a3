"use strict";
(() => {
  const map = document.getElementById("map"), faint = document.getElementById("faint"), strong = document.getElementById("strong");
  const search = document.getElementById("search"), found = document.getElementById("found");
  const doors = [...document.querySelectorAll(".door")], rows = [...document.querySelectorAll(".cells > li")];
  const few = 24; // so many wires can be told apart

  // wire draws a line from a published port to its container.
  function wire(door, around) {
    const cell = document.getElementById(door.dataset.cell);
    if (!cell || !cell.offsetParent || !door.offsetParent) return "";
    const from = door.getBoundingClientRect(), to = cell.getBoundingClientRect();
    const x1 = door.closest(".box").getBoundingClientRect().right - around.left, y1 = from.top + from.height / 2 - around.top;
    const x2 = to.left - around.left, y2 = to.top + to.height / 2 - around.top;
    const bend = Math.max(40, (x2 - x1) / 2);
    return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  }

  function draw(lit) {
    const around = map.getBoundingClientRect();
    const wide = matchMedia("(min-width: 900px)").matches;
    const paths = (list) => `<path d="${list.map((d) => wire(d, around)).join("")}"/>`;
    faint.innerHTML = wide && doors.length <= few ? paths(doors) : "";
    strong.innerHTML = wide ? paths(lit || []) : "";
    for (const marked of document.querySelectorAll(".lit")) marked.classList.remove("lit");
    for (const d of lit || []) {
      d.classList.add("lit");
      document.getElementById(d.dataset.cell).classList.add("lit");
    }
  }

  // light shows which ports lead to a container, and to which container a port leads.
  function light(event) {
    const at = event.target.closest(".door, .cell");
    draw(at ? doors.filter((d) => d === at || d.dataset.cell === at.id) : []);
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      row.hidden = !words.every((w) => row.dataset.q.includes(w));
      if (!row.hidden) count++;
    }
    for (const group of document.querySelectorAll(".net, .segment")) group.hidden = !group.querySelector(".cells > li:not([hidden])");
    for (const d of doors) d.parentElement.hidden = document.getElementById(d.dataset.cell).parentElement.hidden;
    for (const box of document.querySelectorAll(".doors")) box.hidden = !box.querySelector("li:not([hidden])");
    for (const chip of document.querySelectorAll("button.chip")) chip.setAttribute("aria-pressed", chip.dataset.find === search.value.trim());
    found.textContent = words.length ? `${count} of ${rows.length} shown` : "";
    draw();
  }

  search.addEventListener("input", filter);
  for (const chip of document.querySelectorAll("button.chip")) {
    chip.addEventListener("click", () => { search.value = chip.dataset.find; filter(); });
  }
  for (const kind of ["mouseover", "focusin"]) map.addEventListener(kind, light);
  map.addEventListener("mouseleave", () => draw());
  addEventListener("resize", () => draw());
  addEventListener("scroll", () => draw(), { passive: true });
  addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== search) { event.preventDefault(); search.focus(); }
  });
  filter();
})();
