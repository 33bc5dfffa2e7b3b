// The form of a flow: a preset fills in the cron expression, typing one makes it "my own times",
// and a new flow begins in the reader's own time zone.
(() => {
  const form = document.getElementById("form");
  const preset = form && form.elements.preset;
  const cron = form && form.elements.cron;
  const zone = form && form.elements.timezone;
  if (!preset || !cron) return;

  // What belongs to a clock is asked only of a flow that has one.
  const clock = form.querySelectorAll('[data-field="cron"], [data-field="timezone"]');
  const hide = () => clock.forEach((field) => { field.hidden = preset.value === "" && !field.matches(".has-error"); });
  hide();

  const tell = () => cron.dispatchEvent(new Event("input", { bubbles: true }));
  preset.addEventListener("change", () => {
    hide();
    if (preset.value === "custom") {
      cron.focus();
      return;
    }
    cron.value = preset.value;
    tell();
  });
  cron.addEventListener("input", () => {
    const known = [...preset.options].some((option) => option.value === cron.value.trim());
    preset.value = known ? cron.value.trim() : "custom";
  });

  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const asked = new URLSearchParams(location.search).has("timezone");
  const isNew = location.pathname.endsWith("/new") && !form.querySelector(".has-error") && !asked;
  if (zone && isNew && zone.value === "UTC" && [...zone.options].some((option) => option.value === here)) zone.value = here;
})();
