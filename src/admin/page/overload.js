// The charts of upstreams with `overload`: the limit over the requests in flight, and what was refused by class.

// The most upstreams that have charts.
const MAX_CHARTED = 8;
const charted = new Set();

// Adds the charts of upstreams that have none yet. While there is room for some only, those that refuse requests come first.
function showOverload({ admissions = [], time }) {
  const refused = ({ upstream }) => recentAdmissions(upstream, time).count;
  const missing = admissions.filter(({ upstream }) => !charted.has(upstream)).sort((one, other) => refused(other) - refused(one));
  const added = missing.splice(0, MAX_CHARTED - charted.size);
  added.forEach(({ upstream }) => addAdmissionCharts(upstream));
  byId("overload").hidden = charted.size === 0;
  setText(byId("overload-note"), missing.length > 0 ? `and ${plural(missing.length, "more upstream")} with a limit: see the table below` : "");
}

function addAdmissionCharts(upstream) {
  charted.add(upstream);
  const reads = (value) => (slot) => {
    const admission = slot.admissions.get(upstream);
    return admission ? value(admission, slot) : null;
  };
  addChart(`${upstream}: requests in flight`, short, [
    { name: "flight", title: "in flight", isFilled: true, read: reads((admission) => admission.inFlight) },
    { name: "limit", title: "limit", read: reads((admission) => admission.limit) },
  ], "overload");
  const ofClass = (word) => ({ name: word, title: word, read: reads((admission, slot) => (admission[word] ?? 0) / slot.seconds) });
  addChart(`${upstream}: refused by class`, perSecond, CLASSES.map(ofClass), "overload");
}
