// Headings that sort their table, and details that are open on paper.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const numbers = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    const falling = before ? before === "ascending" : numbers; // the largest number first, words from A
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value ?? (numbers ? "" : row.cells[column].textContent);
    const rows = [...table.tBodies[0].rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (!a || !b) return !a - !b; // none last
      return (falling ? -1 : 1) * (isFinite(a) && isFinite(b) ? a - b : a.localeCompare(b, "en"));
    });
    table.tBodies[0].append(...rows);
  }));
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => (one.open = true)));
