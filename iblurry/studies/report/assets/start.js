// Brings the page to life.
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll(".tabs").forEach(tabs);
document.querySelectorAll(".copy").forEach(copying);
for (const block of blocks) {
  const section = document.getElementById(block.id);
  const group = together(block);
  section.querySelectorAll(".chart").forEach((box, number) => {
    if (number === 0) box.append(legend(group), tools(group));
    drawChart(box, group);
  });
  section.querySelectorAll(".maps").forEach((box) => drawMaps(box, block));
}
