// The form of a cluster: only what belongs to the chosen kind of route is asked.
(() => {
  const form = document.getElementById("form");
  const exposure = form && form.elements.exposure;
  if (!exposure) return;
  const fields = { ingress: ["ingress_class"], httproute: ["gateway_namespace", "gateway_name", "gateway_listener"] };
  const show = () => {
    for (const [chosen, names] of Object.entries(fields)) {
      for (const name of names) {
        const field = form.querySelector(`[data-field="${name}"]`);
        field.hidden = exposure.value !== chosen && !field.matches(".has-error");
      }
    }
  };
  exposure.addEventListener("change", show);
  show();
})();
