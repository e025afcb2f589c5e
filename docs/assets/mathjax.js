// Formulas are what arithmatex marked; the fonts are inside tex-svg.js, so nothing is loaded from elsewhere.
window.MathJax = {
  tex: { inlineMath: [["\\(", "\\)"]], displayMath: [["\\[", "\\]"]] },
  options: { ignoreHtmlClass: ".*", processHtmlClass: "arithmatex", enableMenu: false },
};
