// Reads cases, one a line, and writes what the page's script makes of each.
const { readFileSync } = require("fs");
const cases = readFileSync(0, "utf8").split("\n").filter(Boolean).map((one) => JSON.parse(one));
for (const { told, said, claims, stakes, language, text, quotation, spans, datum, known } of cases) {
  if (datum) {
    process.stdout.write(`${isRepeated(datum, known)}\n`);
    continue;
  }
  if (!told) {
    process.stdout.write(`${JSON.stringify(located(quotation, folded(text), spans))}\n`);
    continue;
  }
  const found = statusesOf(told, said, claims);
  const source = (one) => one.passage ? said.passages[one.passage - 1].text : said[one.fact_id];
  const quoted = (found || []).map((one) => ({ ...one,
    quotations: one.quotations.map((each) => ({ ...each, text: sliced(source(each), each.start, each.end) })) }));
  const level = found && levelOf(found, stakes);
  const reasons = level && level.level !== "LOW" ? reasonsOf(quoted, said.answer, language) : [];
  // What stands in a claim as it is given is left out.
  const made = found && found.map(({ findings, sentence, ...one }) => one);
  process.stdout.write(`${JSON.stringify({ found: made, level, reasons })}\n`);
}
