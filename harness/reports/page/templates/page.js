"use strict";
document.documentElement.classList.add("js");  // shows what needs a script

// A heading sorts its table: numbers from the largest, words from A; the third click restores the order.
function sort(heading) {
  const body = heading.closest("table").tBodies[0], rows = [...body.rows];
  rows.forEach((row, place) => { row.dataset.place ??= place; });
  const key = row => {
    const cell = row.cells[heading.cellIndex];
    return cell.dataset.value ?? cell.textContent.trim();
  };
  const numeric = rows.every(row => !isNaN(key(row)));
  const orders = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
  const order = orders[(orders.indexOf(heading.ariaSort) + 1) % 3];
  const compare = (a, b) => numeric ? a - b : a.localeCompare(b, "en", { numeric: true });
  rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (order === "none") return one.dataset.place - other.dataset.place;
    if (a === "" || b === "") return (a === "") - (b === "");  // missing values come last
    return order === "ascending" ? compare(a, b) : compare(b, a);
  });
  for (const other of heading.parentElement.cells) other.ariaSort = "none";
  heading.ariaSort = order;
  body.append(...rows);
}

// One tooltip for all numbers and points: hovering shows it, focus keeps it open so that its links can be
// reached. Without a script a point has the browser's own.
for (const title of document.querySelectorAll(".point > title")) {
  const text = title.textContent.trim(), point = title.parentElement;
  point.ariaLabel = text.replaceAll("\n", "; ");
  point.dataset.tip = text;
  title.remove();
}
const tip = document.getElementById("tip");
let hovered = null, focused = null;

function show() {
  const cell = hovered ?? focused;
  tip.hidden = !cell;
  if (!cell) return;
  tip.replaceChildren(cell.querySelector("template")?.content.cloneNode(true) ?? cell.dataset.tip);
  tip.classList.toggle("preview", cell !== focused);
  tip.classList.toggle("lines", "tip" in cell.dataset);
  place();
}

function place() {
  const cell = hovered ?? focused;
  if (!cell) return;
  const box = (cell.querySelector(".filled") ?? cell).getBoundingClientRect(), page = document.documentElement, gap = 6;
  const below = box.bottom + gap + tip.offsetHeight < page.clientHeight;
  const left = Math.min(box.left, page.clientWidth - tip.offsetWidth - gap);
  tip.style.left = `${Math.max(gap, left)}px`;
  tip.style.top = `${below ? box.bottom + gap : Math.max(gap, box.top - gap - tip.offsetHeight)}px`;
}

const numberAt = target => target instanceof Element ? target.closest("td[tabindex], .point") : null;

function hold(cell) {
  focused?.removeAttribute("aria-describedby");
  focused = cell;
  cell?.setAttribute("aria-describedby", "tip");
  show();
}

// Tab stops once per table; the arrow keys move between its numbers.
function step(cell, key) {
  if (!cell.matches("td")) return false;
  const row = cell.parentElement, rows = row.parentElement.rows, at = cell.cellIndex;
  const next = {
    ArrowLeft: () => row.cells[at - 1],
    ArrowRight: () => row.cells[at + 1],
    ArrowUp: () => rows[row.sectionRowIndex - 1]?.cells[at],
    ArrowDown: () => rows[row.sectionRowIndex + 1]?.cells[at],
    Home: () => row.cells[1],
    End: () => row.cells[row.cells.length - 1],
  }[key]?.();
  if (!next?.hasAttribute("tabindex")) return false;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  return true;
}

// A link to what is folded opens it and all that it is in.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target?.matches(".claim") ? target.firstElementChild : target?.closest("details");
  if (!folded) return;
  target.hidden = false;
  for (let one = folded; one; one = one.parentElement.closest("details")) one.open = true;
  if (folded.parentElement === target || folded === target) folded.querySelector("summary").focus();
  target.scrollIntoView();
}

// Methods that are chosen, anywhere, are the only ones in the chart and in every table; none: all of them.
const chips = [...document.querySelectorAll("input[name=method]")];

function choose(changed) {
  for (const chip of chips) if (chip.value === changed?.value) chip.checked = changed.checked;
  const chosen = new Set(chips.filter(chip => chip.checked).map(chip => chip.value));
  const every = new Set(chips.map(chip => chip.value));
  for (const one of document.querySelectorAll("[data-method]")) {
    one.toggleAttribute("hidden", chosen.size > 0 && !chosen.has(one.dataset.method));
  }
  for (const article of document.querySelectorAll("#tables .scroll")) {
    article.classList.toggle("empty", !article.querySelector("tbody tr:not([hidden])"));
  }
  const output = document.getElementById("chosen");
  if (output) output.value = chosen.size ? `${chosen.size} of ${every.size}` : "all";
}

// The text beside a button, into the clipboard; a page from disk may have only the older way.
async function copy(button) {
  const text = button.nextElementSibling.content.textContent, label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Not copied";
    area.remove();
    button.focus();
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}

document.addEventListener("click", event => {
  const heading = event.target.closest("th button")?.parentElement;
  if (heading) sort(heading);
  if (event.target.closest("a[href^='#']")) setTimeout(reveal);
  if (event.target.matches(".copy")) copy(event.target);
  if (event.target.id === "all-methods") {
    for (const chip of chips) chip.checked = false;
    choose();
  }
});
document.addEventListener("mouseover", event => {
  const cell = numberAt(event.target);
  if (cell !== hovered) { hovered = cell; show(); }
});
document.addEventListener("focusin", event => {
  if (!tip.contains(event.target)) hold(numberAt(event.target));
});
document.addEventListener("focusout", event => {
  if (!event.relatedTarget) hold(null);
});
document.addEventListener("keydown", event => {
  const cell = numberAt(event.target);
  if (event.key === "Escape" && focused) {
    if (tip.contains(event.target)) focused.focus();
    else { hovered = null; hold(null); }
  } else if (cell && event.key === "Enter") {
    if (focused !== cell) hold(cell);
    tip.querySelector("a")?.focus();
    event.preventDefault();
  } else if (cell && step(cell, event.key)) {
    event.preventDefault();
  }
});
document.addEventListener("scroll", place, { capture: true, passive: true });
document.addEventListener("change", event => {
  if (event.target.name === "method") choose(event.target);
});
addEventListener("resize", place);
addEventListener("hashchange", reveal);
document.getElementById("find")?.addEventListener("input", event => {
  const wanted = event.target.value.trim().toLowerCase(), runs = [...document.querySelectorAll(".run")];
  for (const run of runs) {
    run.hidden = !run.querySelector("summary").textContent.toLowerCase().includes(wanted);
  }
  document.getElementById("found").value = `${runs.filter(run => !run.hidden).length} of ${runs.length}`;
});
reveal();
choose();  // a reload keeps what was chosen
