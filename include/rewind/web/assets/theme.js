// Before the page is drawn, and after its first line: Airflow keeps its theme in this origin's storage; "system" leaves it to the browser.
const applyTheme = () => {
  const chosen = localStorage.getItem("theme");
  const known = chosen === "light" || chosen === "dark";
  document.documentElement.dataset.theme = known ? chosen : "";
};
applyTheme();
addEventListener("storage", applyTheme);
