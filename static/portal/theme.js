// Runs before the first paint: a theme "like the system" is decided here, so that nothing flashes.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const theme = root.dataset.theme;
    root.setAttribute("data-bs-theme", theme === "auto" ? (dark.matches ? "dark" : "light") : theme);
  };
  dark.addEventListener("change", apply);
  document.addEventListener("portal:theme", apply);
  apply();
})();
