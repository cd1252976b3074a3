"use strict";
(() => {
  const map = document.getElementById("map"), faint = document.getElementById("faint"), strong = document.getElementById("strong");
  const search = document.getElementById("search"), found = document.getElementById("found");
  const doors = [...document.querySelectorAll(".door")], rows = [...document.querySelectorAll(".cells > li")];
  const few = 16; // so many wires can be told apart

  // wire draws a line from a published port to its container, where nothing else is: beside the ports, above the segment, beside the network, above the
  // row. Each line has a lane of its own.
  function wire(door, around) {
    const cell = document.getElementById(door.dataset.cell);
    if (!cell || !cell.offsetParent || !door.offsetParent) return "";
    const box = (element) => element.getBoundingClientRect();
    const lane = doors.indexOf(door), lanes = doors.length, spread = (room) => (lane + .5) * room / lanes;
    const from = box(door), list = box(door.closest("ul")), edge = box(door.closest(".box")), to = box(cell), row = parseFloat(getComputedStyle(cell.closest("ul")).rowGap);
    const segment = box(cell.closest(".segment")), nets = box(cell.closest(".nets")), trunk = box(document.querySelector(".segments")).left;
    const start = Math.min(Math.max(from.top + from.height / 2, list.top), list.bottom); // what is scrolled away is where the list begins or ends
    const beside = edge.right + 6 + spread(trunk - edge.right - 12), above = segment.top - 4 - spread(16), along = nets.left + 5 + spread(11), over = to.top - 1 - spread(row - 2);
    const down = to.left + 10 + spread(Math.min(to.width - 20, 60));
    return rounded([[edge.right, start], [beside, start], [beside, above], [along, above], [along, over], [down, over], [down, to.top]].map(([x, y]) => [x - around.left, y - around.top]));
  }

  // rounded joins points, and rounds the corners between them.
  function rounded(points) {
    const near = ([x, y], [toX, toY]) => {
      const far = Math.hypot(toX - x, toY - y), part = far && Math.min(6, far / 2) / far;
      return [x + (toX - x) * part, y + (toY - y) * part];
    };
    return points.map((p, i) => i === 0 ? `M${p}` : i === points.length - 1 ? `L${p}` : `L${near(p, points[i - 1])}Q${p} ${near(p, points[i + 1])}`).join("");
  }

  function draw(lit) {
    const around = map.getBoundingClientRect();
    const wide = matchMedia("(min-width: 900px)").matches;
    const paths = (list) => list.map((d) => `<path d="${wire(d, around)}"/>`).join("");
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
