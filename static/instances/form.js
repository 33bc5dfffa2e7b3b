// The form of an instance: more rows for variables, and a new instance begins in the reader's own time zone.
(() => {
  const form = document.getElementById("form");
  if (!form) return;
  form.querySelectorAll("[data-rows]").forEach((rows) => {
    const button = rows.querySelector("[data-add-row]");
    button.hidden = false;
    button.addEventListener("click", () => {
      const last = [...rows.querySelectorAll("[data-row]")].at(-1);
      const next = last.cloneNode(true);
      next.querySelectorAll("input").forEach((input) => { input.value = ""; });
      last.after(next);
      next.querySelector("input").focus();
    });
  });
  const zone = form.elements.time_zone;
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const isNew = location.pathname.endsWith("/new") && !form.querySelector(".has-error") && !location.search.includes("from=");
  if (zone && isNew && zone.value === "" && [...zone.options].some((option) => option.value === here)) zone.value = here;
})();
