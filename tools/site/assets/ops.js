// Filters above the table of ops: by name, by type and by family. A table is taken for it if its
// first column is called Op and it has one called Types.
(() => {
  const table = [...document.querySelectorAll("article table")].find((candidate) => {
    const heads = [...candidate.querySelectorAll("th")].map((head) => head.textContent.trim());
    return heads[0] === "Op" && heads.includes("Types");
  });
  if (!table) return;
  const heads = [...table.querySelectorAll("th")].map((head) => head.textContent.trim());
  const column = (name) => heads.indexOf(name);
  const rows = [...table.tBodies[0].rows].map((row) => {
    const text = (name) => row.cells[column(name)].textContent.trim();
    return {
      row,
      name: text("Op").toLowerCase(),
      types: new Set(text("Types").match(/[a-z]+[0-9]+|bool|variant/g) ?? []),
      family: text("Family"),
    };
  });

  const form = document.createElement("form");
  form.className = "ops-filter";
  form.addEventListener("submit", (event) => event.preventDefault());
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Name of an op";
  search.setAttribute("aria-label", "Name of an op");
  const choice = (label, values) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", label);
    select.add(new Option(label, ""));
    [...new Set(values)].sort().forEach((value) => select.add(new Option(value, value)));
    return select;
  };
  const type = choice("Any type", rows.flatMap((r) => [...r.types]));
  const family = choice("Any family", rows.map((r) => r.family));
  const count = document.createElement("output");
  form.append(search, type, family, count);
  (table.closest(".md-typeset__scrollwrap") ?? table).before(form);
  table.closest("article").classList.add("ops-table");
  // Phones show a card for each op, whose lines are named after the columns.
  for (const { row } of rows) {
    [...row.cells].forEach((cell, index) => {
      cell.dataset.label = heads[index];
    });
  }

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const { row, name, types, family: own } of rows) {
      const fits =
        words.every((word) => name.includes(word)) &&
        (!type.value || types.has(type.value)) &&
        (!family.value || own === family.value);
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} ops`;
    // An address that can be sent to others.
    const query = new URLSearchParams(
      Object.entries({ op: search.value, type: type.value, family: family.value }).filter(
        ([, value]) => value,
      ),
    );
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  };
  const asked = new URLSearchParams(location.search);
  search.value = asked.get("op") ?? "";
  type.value = asked.get("type") ?? "";
  family.value = asked.get("family") ?? "";
  form.addEventListener("input", show);
  show();
})();
