// Tables sorted by a heading, tabs, and commands copied.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.firstElementChild.addEventListener("click", () => {
      const numbers = head.classList.contains("n");
      const before = head.getAttribute("aria-sort");
      const falling = before ? before === "ascending" : numbers; // the largest number first, words from A
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      sort(table.tBodies[0], column, numbers, falling);
    });
  });
}

function sort(body, column, numbers, falling) {
  const key = (row) => {
    const cell = row.cells[column];
    const value = cell.dataset.value ?? (numbers ? undefined : cell.textContent);
    return value === undefined ? undefined : numbers || isFinite(value) ? Number(value) : value;
  };
  const rows = [...body.rows].map((row) => ({ row, key: key(row) }));
  rows.sort((a, b) => {
    if (a.key === undefined || b.key === undefined) return (a.key === undefined) - (b.key === undefined); // none last
    const order =
      typeof a.key === "number" && typeof b.key === "number" ? a.key - b.key : String(a.key).localeCompare(String(b.key), "en");
    return falling ? -order : order;
  });
  body.append(...rows.map(({ row }) => row));
}

/** Panels of which one is shown: buttons take the place of their headings. */
function tabs(box) {
  const panels = [...box.children];
  if (panels.length < 2) return;
  const bar = make("div", { class: "bar", role: "tablist", "aria-label": box.dataset.label });
  const buttons = panels.map((panel, number) => {
    const heading = panel.querySelector("h4");
    const button = make("button", { type: "button", role: "tab" }, ...[...heading.childNodes].map((n) => n.cloneNode(true)));
    heading.classList.add("paper-only");
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-label", heading.textContent);
    button.addEventListener("click", () => choose(number));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choose((number + step + panels.length) % panels.length).focus();
    });
    return button;
  });
  function choose(number) {
    panels.forEach((panel, other) => (panel.hidden = other !== number));
    buttons.forEach((button, other) => {
      button.setAttribute("aria-selected", other === number);
      button.tabIndex = other === number ? 0 : -1;
    });
    return buttons[number];
  }
  bar.append(...buttons);
  box.prepend(bar);
  choose(0);
}

function copying(button) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // a page opened as a file may not be allowed to
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = "Copy"), 2500);
  });
}
